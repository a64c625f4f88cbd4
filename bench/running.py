"""Starting the programs of systems, and counting their jobs at the pipe."""

import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.peers import Installed
from bench.server import Server

ENQUEUE_S: Final = 120
PATIENCE_S: Final = 120
"""A worker whose jobs don't come to an end within this time is given up."""
_PAUSE_S: Final = 0.002
"""Between two looks at the pipe: being woken by every job would take time from the worker."""


class RunError(Exception):
    """A program failed; `str()` says how."""


class Pipe:
    """The named pipe on which jobs say that they run."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="workron-bench-")
        self.path = Path(self._folder.name) / "pipe"
        os.mkfifo(self.path)
        # Opened for both, so that it never ends and never blocks the opener.
        self._fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)

    def close(self) -> None:
        os.close(self._fd)
        self._folder.cleanup()

    def fileno(self) -> int:
        return self._fd

    def read(self) -> bytes:
        """Return what has been written, empty if nothing has."""
        try:
            return os.read(self._fd, 65536)
        except BlockingIOError:
            return b""

    def count(self, total: int, *, patience_s: float = PATIENCE_S) -> tuple[int, float]:
        """Wait for `total` bytes; return how many came after the first look, and within how many seconds."""
        if not select.select([self._fd], [], [], patience_s)[0]:
            raise RunError(f"no job ran within {patience_s:g} s")
        first = len(self.read())
        started = last = time.perf_counter()
        seen = first
        while seen < total:
            data = self.read()
            if data:
                seen += len(data)
                last = time.perf_counter()
            elif time.perf_counter() - last > patience_s:
                raise RunError(f"only {seen} of {total} jobs ran")
            if len(data) < 65536:
                time.sleep(_PAUSE_S)  # reading at once would take CPU from what is measured
        return seen - first, last - started

    def stamps(self, count: int, *, patience_s: float = PATIENCE_S) -> dict[int, int]:
        """Wait for `count` stamps; return the moment of each, in ns, by number. Bytes of no-op jobs are passed over."""
        deadline = time.monotonic() + patience_s
        text = b""
        while text.count(b"\n") < count:
            if time.monotonic() > deadline:
                seen = text.count(b"\n")
                raise RunError(f"only {seen} of {count} stamping jobs ran")
            text += self.read()
            time.sleep(_PAUSE_S)  # as above
        rows = (line.lstrip(b".").split() for line in text.splitlines())
        return {int(row[0]): int(row[1]) for row in rows if len(row) == 2}


class Runner:
    """Runs the programs of systems against one server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.pipe = Pipe()

    def close(self) -> None:
        self.pipe.close()

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("WORKRON_", "VIRTUAL_ENV"))}
        own = {"BENCH_PORT": str(self.server.port), "BENCH_FIFO": str(self.pipe.path), "PYTHONUNBUFFERED": "1"}
        return kept | own

    def enqueue(self, system: Installed, role: str, *numbers: int) -> dict[str, Any]:
        """Run an enqueueing role to its end and return what it printed."""
        command = [*system.command, role, *map(str, numbers)]
        try:
            done = subprocess.run(  # noqa: S603 - our own programs
                command,
                env=self._environment(),
                cwd=system.folder,
                capture_output=True,
                text=True,
                timeout=ENQUEUE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RunError(f"{system.name} {role} took more than {ENQUEUE_S} s") from None
        if done.returncode != 0:
            raise RunError(f"{system.name} {role}: {_last_line(done.stderr)}")
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    @contextmanager
    def worker(self, system: Installed) -> Iterator["subprocess.Popen[str]"]:
        """Have one worker process of a system working; kill it at the end."""
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(  # noqa: S603 - our own programs
                [*system.command, "work"],
                env=self._environment(),
                cwd=system.folder,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
                text=True,
            )
            try:
                yield process
            except RunError as error:
                errors.seek(0)
                raise RunError(f"{system.name}: {error}; {_last_line(errors.read())}") from error
            finally:
                process.kill()
                process.wait()
                while self.pipe.read():
                    pass


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"
