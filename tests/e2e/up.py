"""A `workron up` whose processes may be killed, singly or all at once, and which may be started again."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2

from tests.local.probe import command_line, wait_for
from tests.local_stack import READY_S, ROOT, STOP_S, environment
from tests.plain_http import NO_AUTHORITIES

MARKS = {
    "server": b"valkey-server",
    "api": b"workron api ",
    "reaper": b"workron reaper ",
    "worker": b"workron worker ",
    "guardian": b"guardian.py",
}
"""What the command line of each process has in it, as `ps` shows it."""


class Up:
    """One data directory, and the `workron up` that runs on it, if one does."""

    def __init__(self, home: Path, *options: str, launcher: Sequence[str] = (), **settings: str) -> None:
        self.log_file = home / "up.log"
        self._command = [*launcher, sys.executable, "-m", "workron", "up", *options]
        self.environment = environment(home) | settings
        self.data_dir = Path(self.environment["WORKRON_DATA_DIR"])
        self._announcements = Path(self.environment["XDG_RUNTIME_DIR"], "workron")
        self._process: subprocess.Popen[bytes] | None = None
        self.http: httpx2.Client
        """Asks the API, with the key."""
        self.redis_url: str
        """The embedded server."""

    def start(self) -> None:
        """Start it, and wait until it says that it is ready, and its worker is."""
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_for(lambda: (self._announced() and "guardian" in self.pids) or self.ended, "ready", within_s=READY_S)
        assert not self.ended, self.log_file.read_text()[-4000:]
        instance = self._announced()[0]
        self.redis_url = instance["redis"]
        key = Path(instance["key_file"]).read_text().strip()
        self.http = httpx2.Client(
            base_url=instance["url"],
            headers={"authorization": f"Bearer {key}"},
            timeout=30,
            trust_env=False,
            verify=NO_AUTHORITIES,
        )

    def _announced(self) -> list[dict[str, Any]]:
        assert self._process
        paths = self._announcements.glob(f"{self._process.pid}-*.json")
        return [json.loads(path.read_text()) for path in paths]

    @property
    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    @property
    def pids(self) -> dict[str, int]:
        """The processes that are there now, by name."""
        assert self._process
        found = {"supervisor": self._process.pid}
        for pid in descendants(self._process.pid):
            line = command_line(pid).replace(b"\0", b" ")
            # The first one: between fork and exec a command looks like its worker.
            found = {name: pid for name, mark in MARKS.items() if mark in line} | found
        return found

    def entries(self, event: str) -> list[dict[str, Any]]:
        """Return the log's entries with this message."""
        lines = self.log_file.read_text().splitlines()
        return [entry for entry in map(json.loads, lines) if entry["event"] == event]

    def kill(self, name: str) -> None:
        os.kill(self.pids[name], signal.SIGKILL)

    def kill_everything(self) -> None:
        """Kill the whole tree, running commands too, as a loss of power would."""
        missing = set(MARKS) - set(self.pids)
        assert not missing
        self._kill_tree()

    def _kill_tree(self) -> None:
        assert self._process
        pids = [self._process.pid, *descendants(self._process.pid)]
        for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first, nobody sees another die
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        self._process.wait(10)
        self.http.close()

    def wait_for(self, condition: Callable[[], object], what: str, *, within_s: float = 60.0) -> None:
        """Wait until the condition holds; what fails meanwhile for want of an API is tried again."""

        def holds() -> object:
            try:
                return condition()
            except httpx2.HTTPError:
                return False

        try:
            wait_for(holds, what, within_s=within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log_file.read_text()[-3000:]}") from None

    def wait_for_another(self, name: str, pid: int) -> None:
        """Wait until another process than this one has its place."""
        self.wait_for(lambda: self.pids.get(name, pid) != pid, f"a new {name}")

    def stop(self) -> None:
        """Interrupt it; it has to stop by itself, and cleanly."""
        assert self._process
        self.http.close()
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(STOP_S) == 0, self.log_file.read_text()[-4000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.ended:
            return
        if error is None:
            self.stop()
        else:
            self._kill_tree()


def descendants(pid: int) -> list[int]:
    """Return the process's children, then theirs, and so on."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found[1:]
