"""A server that speaks TLS only, and lets its user do only what the documentation names."""

from pathlib import Path

import pytest

from tests.chaos.data_servers import KEYS
from tests.chaos.deployment import Size
from tests.chaos.harness import Run
from tests.chaos.topologies import ACL, Tls
from tests.local_stack import ROOT
from tests.topologies.conftest import Placed
from workron.errors import StoreRefused, StoreUnavailable
from workron.redis.connection import Connection

pytestmark = [pytest.mark.chaos]
SMALL = Size(apis=2, workers=2, http_workers=1, reapers=1)
with_tls = pytest.mark.parametrize("placed", [Tls], indirect=True)


def test_the_documented_user_is_the_one_that_is_tested() -> None:
    assert f"user workron {ACL.format(password='PASSWORD')}\n" in (ROOT / "docs" / "deployment.md").read_text()


@with_tls
async def test_a_client_without_a_certificate_or_with_another_authority_is_not_connected(placed: Placed) -> None:
    for url in (placed.ground.url.partition("&")[0], placed.ground.url.partition("?")[0]):
        connection = Connection.open(url, budget_s=1.0)
        with pytest.raises(StoreUnavailable):
            await connection.call("PING")
        await connection.aclose()


@with_tls
async def test_the_user_can_do_nothing_but_what_workron_needs(placed: Placed) -> None:
    connection = placed.connection()
    assert await connection.call("SET", f"{KEYS.prefix}x", "1") == b"OK"
    for forbidden in (("FLUSHALL",), ("CONFIG", "GET", "*"), ("KEYS", "*"), ("GET", "else"), ("SUBSCRIBE", "else")):
        with pytest.raises(StoreRefused, match="refuses us"):
            await connection.call(*forbidden)
    await connection.aclose()


async def test_a_whole_deployment_works_over_tls_with_the_documented_commands_only(tmp_path: Path) -> None:
    kinds = ("kill", "cut", "lose-replies", "script-flush", "kill-server")
    account = await Run(tmp_path, seed=6, seconds=15, topology="tls", kinds=kinds, size=SMALL).run()
    print(account.table())
    assert account.wrong == {}
    logs = "".join(path.read_text() for path in tmp_path.glob("*.log"))
    assert "no permissions" not in logs
    assert "Traceback" not in logs
