"""A `workron up` with stand-ins for its processes: real supervisor, server and signals, small children.

`python stack.py up OPTIONS` runs the supervisor, `python stack.py child NAME TRACE BEHAVIOUR` one of its children.
What a child does is appended to the file TRACE, a line each: `<seconds> <name> <pid> <what>`.
"""

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from tests.local.probe import answers, call, wait_for
from tests.ports import free_port

ROOT = Path(__file__).parents[2]


class Event(NamedTuple):
    at_s: float
    name: str
    pid: int
    what: str


class Stack:
    """One supervisor, run as a process of its own; killed at the end of the test if it still runs."""

    def __init__(self, home: Path, *, launcher: Sequence[str] = (), **options: Any) -> None:
        self.home = home
        self.data_dir = home / "data"
        self.socket = self.data_dir / "valkey" / "valkey.sock"
        self.trace_file = home / "trace"
        self.log_file = home / "log"
        self.options = {"data_dir": str(self.data_dir), "port": free_port(), "trace": str(self.trace_file)} | options
        environment = os.environ | {"XDG_RUNTIME_DIR": str(home), "PYTHONPATH": str(ROOT)}
        with self.log_file.open("ab") as log:
            argv = [*launcher, sys.executable, __file__, "up", json.dumps(self.options)]
            self.process = subprocess.Popen(argv, stderr=log, stdout=log, env=environment)

    def log(self) -> str:
        return self.log_file.read_text()

    def entries(self, event: str) -> list[dict[str, Any]]:
        """Return the log's entries with this message."""
        entries = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
        return [entry for entry in entries if entry["event"] == event]

    def trace(self, name: str = "", what: str = "") -> list[Event]:
        """Return what the children did, of one of them, of one kind."""
        lines = self.trace_file.read_text().splitlines() if self.trace_file.exists() else []
        events = [Event(float(at), who, int(pid), did) for at, who, pid, did in (line.split(" ", 3) for line in lines)]
        return [event for event in events if name in ("", event.name) and what in ("", event.what)]

    def pids(self) -> set[int]:
        return {event.pid for event in self.trace(what="started")}

    def ready(self, times: int = 1) -> "Stack":
        """Wait until it says so, and its three children have come so far as to be told things."""
        wait_for(lambda: len(self.entries("ready")) >= times or self.process.poll() is not None, "ready")
        assert self.process.poll() is None, self.log()
        wait_for(lambda: len(self.trace(what="started")) >= 3 * times, "all are started")
        return self

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.end()

    def end(self) -> int:
        return self.process.wait(40)

    def call(self, *words: str) -> bytes:
        return call(self.socket, *words)

    def __enter__(self) -> "Stack":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def up(options: dict[str, Any]) -> int:
    from workron.errors import WorkronError
    from workron.local import supervisor
    from workron.local.addresses import http_ok
    from workron.local.child_specs import ChildSpec
    from workron.local.prepared import prepare
    from workron.settings import Settings

    behaviours = {"api": "web", "worker": "", "reaper": ""} | options.pop("children", {})
    grace_s, first = options.pop("grace_s", 30.0), options.pop("first", False)
    trace, forks = options.pop("trace"), options.pop("forks", True)

    def specs(settings: Settings, api_key: str | None, *, embedded: bool) -> Sequence[ChildSpec]:
        def spec(name: str, order: int, **more: Any) -> ChildSpec:
            argv = (sys.executable, __file__, "child", name, trace, behaviours[name])
            server = settings.data_dir / "valkey" / "valkey.sock"
            env = os.environ | {"PORT": str(settings.port), "SERVER": str(server)}
            return ChildSpec(name, argv, env, stop_order=order, stop_grace_s=grace_s, **more)

        ready = functools.partial(http_ok, settings.host, settings.port, "/readyz")
        return [spec("api", 1, ready=ready, first=first), spec("reaper", 2), spec("worker", 0)]

    def main(name: str) -> int:
        return Child(name, trace, behaviours[name]).run()

    given = Settings.model_validate(options)
    try:
        with prepare(dict.fromkeys(behaviours if forks else (), "workron.runtime.lifeline"), main) as prepared:
            return supervisor.run(given, specs, prepared)
    except WorkronError as error:
        print(f"workron: {error}", file=sys.stderr)
        return 8


class Child:
    """Runs until SIGTERM, then does what its behaviour says.

    `exit N` ends at once; `drain S` takes S seconds to end, less after a second signal, and then sees if the server is
    still there; `stubborn` does not end; `web S` answers every request with 200, and goes on with it for S seconds.
    """

    def __init__(self, name: str, trace: str, behaviour: str) -> None:
        self.name, self.trace = name, trace
        self.kind, _, value = behaviour.partition(" ")
        self.value = float(value or 0)
        self.told = 0
        self.asked = threading.Event()
        self.now = threading.Event()

    def run(self) -> int:
        from workron.runtime import lifeline

        signal.signal(signal.SIGTERM, self.on_signal)
        lifeline.watch()
        self.note("started")
        if self.kind == "exit":
            return int(self.value)
        if self.kind == "web":
            threading.Thread(target=self.serve, daemon=True).start()
        while not self.asked.wait(0.02):
            pass
        self.note("asked")
        if self.kind == "stubborn":
            time.sleep(60)
        if self.value:
            self.note("hurried" if self.now.wait(self.value) else "drained")
        if self.kind == "drain":
            self.note("served" if answers(Path(os.environ["SERVER"])) else "deserted")
        self.note("ended")
        return 0

    def on_signal(self, *_: object) -> None:
        (self.now if self.asked.is_set() else self.asked).set()

    def note(self, what: str) -> None:
        with open(self.trace, "a") as file:
            file.write(f"{time.monotonic()} {self.name} {os.getpid()} {what}\n")

    def serve(self) -> None:
        with socket.create_server(("127.0.0.1", int(os.environ["PORT"]))) as server:
            while True:
                connection, _ = server.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


if __name__ == "__main__":
    sys.exit(up(json.loads(sys.argv[2])) if sys.argv[1] == "up" else Child(*sys.argv[2:]).run())
