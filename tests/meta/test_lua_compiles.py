"""Every script compiles on the real servers, with room for some names more: a script has 200 locals at most."""

import pytest
from redis import Redis

from tests.lua_source import SCRIPTS
from workron.redis.scripts import Script

ROOM = 5


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_compiles_with_room_for_more_names(url: str, name: str) -> None:
    source = Script.load(name, shebang=True).source
    first, rest = source.split(b"\n", 1)
    names = b"".join(b"local more_%d = 1; " % number for number in range(ROOM))
    with Redis.from_url(url) as redis:
        assert redis.script_load(first + b"\n" + names + rest)
