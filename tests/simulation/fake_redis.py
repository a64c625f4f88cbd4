"""The server: fakeredis, which runs the real Lua scripts, told what time it is and asked one command at a time.

Compiled scripts are kept for the whole process: to compile them is most of what a call costs fakeredis.
"""

import copy
import hashlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import fakeredis
from fakeredis import _msgs as msgs
from fakeredis._helpers import SimpleError
from fakeredis._socket._fakesocket import FakeSocket
from fakeredis.commands_mixins.scripting_mixin import LUA_MODULE

from tests.lua_source import SCRIPTS
from tests.simulation.timeline import Host, Timeline

_HEADER: Final = re.compile(r"^-- (\w+): ", re.MULTILINE)
_CALLS_BETWEEN_COLLECTIONS: Final = 500

_first: list[fakeredis.FakeServer] = []
"""The server whose Lua runtime all others share."""
_compiled: dict[bytes, tuple[bytes, str, Any]] = {}
"""Source → its SHA-1, the script's name, and what runs it."""


@dataclass(frozen=True, slots=True)
class State:
    """All that the server would find on its disk."""

    items: dict[bytes, Any]
    calls: int


class _Socket(FakeSocket):
    """The server's only connection."""

    told: Callable[[bytes, Sequence[Any]], None]
    """Called with each command of a script that changes a job or sends a message, when it is done."""
    script = ""
    calls = 0
    commands = 0
    """How many the script has run."""

    def eval(self, script: bytes, numkeys: int, *keys_and_args: bytes) -> Any:
        server: Any = self._server
        runtime = self._get_server_runtime(server)
        if script not in _compiled:
            sha = hashlib.sha1(script, usedforsecurity=False).hexdigest().encode()
            _compiled[script] = sha, _name_of(script.decode()), runtime.compile(script)
        sha, self.script, run = _compiled[script]
        server.script_cache[sha] = script
        server._lua_current_socket[0] = self
        self._script_resp = 2
        self.commands = 0
        keys, args = keys_and_args[:numkeys], keys_and_args[numkeys:]
        server._lua_set_keys_argv(runtime.table_from(keys), runtime.table_from(args))
        try:
            result = run()
        except LUA_MODULE.LuaError as error:
            raise SimpleError(msgs.SCRIPT_ERROR_MSG.format(sha.decode(), error)) from error
        finally:
            self._script_resp = None
            self.calls += 1
            if self.calls % _CALLS_BETWEEN_COLLECTIONS == 0:
                runtime.execute("collectgarbage()")
        return self._convert_lua_result(result, nested=False)

    def _get_server_runtime(self, server: Any) -> Any:
        if not _first:
            super()._get_server_runtime(server)
            _first.append(server)
        elif not hasattr(server, "_lua_runtime"):
            server.__dict__ |= {name: value for name, value in vars(_first[0]).items() if name.startswith("_lua")}
        return server._lua_runtime

    def _lua_redis_call(self, lua_runtime: Any, expected_globals: set[Any], op: bytes, *args: Any) -> Any:
        self.commands += 1
        result = super()._lua_redis_call(lua_runtime, expected_globals, op, *args)
        if op in (b"HSET", b"PUBLISH"):
            self.told(op, args)
        return result


class Server(Host):
    """One Redis. `apply` runs a command to its end, as Redis does."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__("redis")
        self._timeline = timeline
        self.calls = 0
        """How many commands it has run."""
        self.up = True
        self.command: Sequence[Any] = ()
        """What it runs now, or has run last."""
        self.on_change: Callable[[str, Sequence[Any]], None] = lambda script, args: None
        self.on_message: Callable[[str], None] = lambda text: None
        self.fake: fakeredis.FakeServer
        self._socket: _Socket
        self._boot({})

    def _boot(self, items: dict[bytes, Any]) -> None:
        """Start with these data, and nothing else that was known before."""
        with self._timeline.as_host(self):
            self.fake = fakeredis.FakeServer(version=(7, 0))
            self._socket = _Socket(self.fake, 0, client_class=fakeredis.FakeRedis, client_info={"resp": 3})
        self._socket.told = self._told
        database = self.fake.dbs[0]
        for key, item in items.items():
            database[key] = item

    def _told(self, op: bytes, args: Sequence[Any]) -> None:
        if op == b"HSET":
            self.on_change(self._socket.script, args)
        else:
            self.on_message(args[1].decode())

    @property
    def now_ms(self) -> int:
        with self._timeline.as_host(self):
            return int(time.time() * 1000)

    @property
    def script(self) -> str:
        """Which script ran last."""
        return self._socket.script

    @property
    def commands(self) -> int:
        """How many commands the last script has run."""
        return self._socket.commands

    def apply(self, command: Sequence[Any]) -> Any:
        """Run a command; an error comes back as an exception that is not raised."""
        self.calls += 1
        self.command = command
        self._socket.script = ""
        with self._timeline.as_host(self):
            self._socket._process_command([_encoded(part) for part in command])
        assert self._socket.responses is not None
        answer = self._socket.responses.get_nowait()
        return sorted(answer) if command[0] == "SMEMBERS" else answer

    def get(self, key: str) -> Any:
        """Look at what a key holds, past everything."""
        database = self.fake.dbs[0]
        before, self._timeline.running = self._timeline.running, self
        database.time = time.time()
        item = database.get(key.encode())
        self._timeline.running = before
        return None if item is None else item.value

    @property
    def items(self) -> dict[bytes, Any]:
        """All that it holds, by key."""
        items: dict[bytes, Any] = self.fake.dbs[0]._dict
        return items

    def state(self) -> State:
        return State(copy.deepcopy(self.items), self.calls)

    def restart(self, state: State | None = None) -> None:
        """Start again, with all that it held or with what it held earlier."""
        self._boot((state or self.state()).items)


def _name_of(script: str) -> str:
    """Return the word in front of the script's own header; those before it name parts of `lua/lib`."""
    return next(name for name in _HEADER.findall(script) if name in SCRIPTS)


def _encoded(part: Any) -> bytes:
    if isinstance(part, bytes):
        return part
    return part.encode() if isinstance(part, str) else repr(part).encode()
