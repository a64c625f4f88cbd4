"""Messages about a login of Redis that is missing or wrong."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import start_server
from workron.errors import StoreUnavailable
from workron.local.valkey import server_binary
from workron.redis.connection import Connection


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[Path]:
    """A server that requires a password."""
    server = start_server(server_binary(), tmp_path, "--requirepass", "right")
    yield tmp_path / "redis.sock"
    server.kill()
    server.wait(10)


@pytest.mark.parametrize(
    ("login", "why"),
    [
        ("", "Redis can't be reached: it requires a password, and the Redis URL has none: redis://:PASSWORD@HOST"),
        (":wrong@", "Redis can't be reached: the user or the password of the Redis URL is wrong"),
        ("user:right@", "Redis can't be reached: the user or the password of the Redis URL is wrong"),
    ],
)
async def test_a_missing_or_wrong_password_is_named_as_the_reason(socket: Path, login: str, why: str) -> None:
    connection = Connection.open(f"unix://{login}{socket}", budget_s=0.5)
    with pytest.raises(StoreUnavailable) as refused:
        await connection.call("PING")
    assert str(refused.value) == why
    await connection.aclose()
