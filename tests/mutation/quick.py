"""One Lua runtime for all fake servers of a process, which compiles each script once: most of what a test costs."""

from collections.abc import Iterable
from typing import Any

import fakeredis
from fakeredis.commands_mixins import scripting_mixin

from workron.redis.scripts import Script


class Runtime:
    """A Lua runtime as fakeredis uses it, with the scripts that it was given."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._compiled: dict[bytes | str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def compile(self, script: bytes | str) -> Any:
        if script not in self._compiled:
            self._compiled[script] = self._runtime.compile(script)
        return self._compiled[script]

    def execute(self, script: bytes | str) -> Any:
        return self.compile(script)()


def share_one_runtime(scripts: Iterable[str]) -> None:
    """Have all fake servers share one, and compile these scripts for it now."""
    mixin: Any = scripting_mixin.ScriptingCommandsMixin
    make, shared = mixin._get_server_runtime, {}

    def runtime_of(self: Any, server: Any) -> Any:
        if not shared:
            make(self, server)
            server._lua_runtime = Runtime(server._lua_runtime)
            shared.update({name: value for name, value in vars(server).items() if name.startswith("_lua_")})
            for name in scripts:
                server._lua_runtime.compile(Script.load(name, shebang=False).source)
        vars(server).update(shared)
        return shared["_lua_runtime"]

    mixin._get_server_runtime = runtime_of
    fakeredis.FakeRedis(server=fakeredis.FakeServer(version=(7, 0))).eval("return 1", 0)
