"""One Lua runtime for all fake servers of a thread, which compiles each script once: most of what a call costs.

As fakeredis has it, each call compiles its script, and then collects all garbage of the runtime.
"""

import threading
from collections.abc import Iterable
from typing import Any, Final

import fakeredis
from fakeredis.commands_mixins import scripting_mixin

from workron.redis.scripts import Script

CALLS_BETWEEN_COLLECTIONS: Final = 500

_of_thread = threading.local()


class Runtime:
    """A Lua runtime as fakeredis uses it, with the scripts that it was given."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._compiled: dict[bytes | str, Any] = {}
        self._collections = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def compile(self, script: bytes | str) -> Any:
        if script not in self._compiled:
            self._compiled[script] = self._runtime.compile(script)
        return self._compiled[script]

    def execute(self, script: bytes | str) -> Any:
        if script == "collectgarbage()":  # after each call
            self._collections += 1
            if self._collections % CALLS_BETWEEN_COLLECTIONS:
                return None
        return self.compile(script)()


_mixin: Final[Any] = scripting_mixin.ScriptingCommandsMixin
_make: Final = _mixin._get_server_runtime


def _runtime_of(self: Any, server: Any) -> Any:
    shared = _of_thread.__dict__
    if not shared:
        _make(self, server)
        server._lua_runtime = Runtime(server._lua_runtime)
        shared.update({name: value for name, value in vars(server).items() if name.startswith("_lua_")})
    vars(server).update(shared)
    return shared["_lua_runtime"]


def share_one_runtime() -> None:
    """Have all fake servers share one."""
    _mixin._get_server_runtime = _runtime_of


def compile_now(scripts: Iterable[str]) -> None:
    """Compile these scripts before they are called."""
    fakeredis.FakeRedis(server=fakeredis.FakeServer(version=(7, 0))).eval("return 1", 0)
    for name in scripts:
        _of_thread._lua_runtime.compile(Script.load(name, shebang=False).source)
