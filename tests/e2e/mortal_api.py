"""The real API in processes that kill themselves at a chosen call to Redis.

`python mortal_api.py` forks one process for each line of its input, `{"settings": {…}, "dies": ["before", 3]}`, and
writes where that process listens, its id, each transition that it calls, and how it ended:

    port 40123
    pid 4711
    call stage
    ended -9

Forked from a process that has imported everything, an API costs milliseconds instead of a second.
"""

import functools
import gc
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[2]
NEVER = ("never", 0)


def serve(listener: socket.socket, settings: dict[str, Any], when: str, number: int) -> int:
    """Serve as `workron api` does, until a stop signal or the chosen death."""
    from api import server
    from workron.redis.connection import Connection
    from workron.redis.scripts import Scripts
    from workron.settings import Settings

    run, calls = Scripts._run, 0

    async def run_and_die(self: Scripts, name: str, *args: Any, **options: Any) -> Any:
        nonlocal calls
        tell("call", name)
        chosen, calls = calls == number, calls + 1
        if chosen and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        reply = await run(self, name, *args, **options)
        if chosen and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return reply

    Scripts._run = run_and_die  # type: ignore[method-assign]
    # However slow the machine: a call that is given up would be another end than the chosen one.
    Connection.open = functools.partial(Connection.open, budget_s=20.0)  # type: ignore[method-assign]
    server.bind = lambda *_: listener
    return server.run(Settings.model_validate(settings))


def tell(word: str, value: object) -> None:
    os.write(1, f"{word} {value}\n".encode())


def fork_for_each_line() -> None:
    from api.server import bind

    gc.freeze()
    for line in sys.stdin:
        order = json.loads(line)
        listener = bind("127.0.0.1", order["settings"].get("port", 0))
        tell("port", listener.getsockname()[1])
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = serve(listener, order["settings"], *order["dies"])
            finally:
                os._exit(code)
        listener.close()
        tell("pid", pid)
        _, status = os.waitpid(pid, 0)
        tell("ended", os.waitstatus_to_exitcode(status))


@dataclass(frozen=True)
class Life:
    """What one of these processes did."""

    calls: list[str]
    code: int


class MortalApi:
    """The test's side: `start` one, talk to it, then read its `life`."""

    def __init__(self, log_file: Path) -> None:
        self._pid: int | None = None
        with log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )

    def start(self, dies: tuple[str, int] = NEVER, **settings: Any) -> int:
        """Start an API that dies so; returns its port."""
        assert self._process.stdin
        print(json.dumps({"settings": settings, "dies": dies}), file=self._process.stdin, flush=True)
        port, self._pid = int(self._next("port")), int(self._next("pid"))
        return port

    def stop(self) -> None:
        """Stop the one that was started last, as `workron up` would."""
        assert self._pid
        os.kill(self._pid, signal.SIGTERM)

    def life(self) -> Life:
        """Wait for the end of the one that was started last."""
        calls: list[str] = []
        while True:
            word, value = self._line()
            if word == "ended":
                self._pid = None
                return Life(calls, int(value))
            calls.append(value)

    def _next(self, expected: str) -> str:
        word, value = self._line()
        assert word == expected
        return value

    def _line(self) -> tuple[str, str]:
        assert self._process.stdout
        word, _, value = self._process.stdout.readline().rstrip().partition(" ")
        assert word, "the process that forks is gone"
        return word, value

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process.stdin
        assert self._process.stdout
        if self._pid:  # a test that failed has left it
            os.kill(self._pid, signal.SIGKILL)
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


if __name__ == "__main__":
    fork_for_each_line()
