"""Every script compiles on the real servers, with room for some names more: a script has 200 locals at most."""

from pathlib import Path

import pytest
from redis import Redis

from workron.redis.scripts import Script

SCRIPTS = sorted(path.stem for path in (Path(__file__).resolve().parents[2] / "lua").glob("*.lua"))
ROOM = 5


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_compiles_with_room_for_more_names(url: str, name: str) -> None:
    source = Script.load(name, shebang=True).source
    first, rest = source.split(b"\n", 1)
    names = b"".join(b"local more_%d = 1; " % number for number in range(ROOM))
    with Redis.from_url(url) as redis:
        assert redis.script_load(first + b"\n" + names + rest)
