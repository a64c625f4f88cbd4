"""The disk of the embedded server is full: that is said in one line, and outlasted; nothing acknowledged is lost."""

import resource
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.up import Up

pytestmark = [pytest.mark.chaos]

NO_LIMIT = resource.RLIM_INFINITY
SETTINGS = {"WORKRON_LOG_FORMAT": "json", "WORKRON_REAP_EVERY": "0.2s"}
MIB = 1024 * 1024
FULL = "embedded server out of disk space, waiting to restart"


class Limited:
    """Files can't grow beyond a limit: for the server and for the supervisor, as `ulimit -f` or a quota has it."""

    def __init__(self, home: Path) -> None:
        self.up = Up(home, "--slots", "2", **SETTINGS)
        self._pids: list[int] = []

    def fill(self) -> None:
        journal = self.up.data_dir / "valkey" / "appendonlydir"
        size = max(path.stat().st_size for path in journal.iterdir())
        self._pids = [self.up.pids[name] for name in ("server", "supervisor")]
        for pid in self._pids:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size + 100_000, NO_LIMIT))

    def make_room(self) -> None:
        resource.prlimit(self._pids[1], resource.RLIMIT_FSIZE, (NO_LIMIT, NO_LIMIT))


class Small:
    """A file system of its own that is full."""

    def __init__(self, home: Path) -> None:
        data = home / "data"
        data.mkdir()
        words = f"mount -t tmpfs -o size=24m,mode=700 none {shlex.quote(str(data))}"
        key = home / "key"  # outside, where the test can read it, too
        key.write_text("a-key-for-tests-only")
        launcher = in_namespace(f'{words} && exec "$@"')
        self.up = Up(home, "--slots", "2", launcher=launcher, WORKRON_API_KEY_FILE=str(key), **SETTINGS)

    def _filler(self) -> Path:
        return Path(f"/proc/{self.up.pids['supervisor']}/root{self.up.data_dir}", "filler")

    def fill(self) -> None:
        with self._filler().open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(MIB))
            except OSError:
                filler.truncate(filler.tell() - 100_000)

    def make_room(self) -> None:
        self._filler().unlink()


def in_namespace(script: str) -> list[str]:
    """Return what runs a script as root over file systems of its own; the rest of the command is its arguments."""
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh"]


def can_mount() -> bool:
    mounted = subprocess.run([*in_namespace("mount -t tmpfs none /mnt")], capture_output=True, check=False)
    return mounted.returncode == 0


KINDS = [Limited, Small] if can_mount() else [Limited]


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_is_one_line_and_everything_goes_on_when_there_is_room_again(kind: Any, tmp_path: Path) -> None:
    disk = kind(tmp_path)
    with disk.up as up:
        up.start()
        before = up.pids
        running = submit(up, "sleep 2; echo all of it")
        disk.fill()
        accepted = list(submitted_until_full(up))
        assert len(accepted) > 5
        assert up.http.get("/readyz").status_code == 503
        up.wait_for(lambda: up.entries(FULL), "the line that says so")
        [line] = up.entries(FULL)
        assert "can't write" in line["error"]
        assert "\n" not in line["error"]
        refused = up.http.post("/jobs", json={"command": "true"})
        assert (refused.status_code, refused.json()["type"]) == (503, "/problems/store-unavailable")
        assert int(refused.headers["retry-after"]) >= 1

        disk.make_room()
        up.wait_for(lambda: up.http.get("/readyz").status_code == 200, "readiness")
        accepted += [running, submit(up, "true")]
        ended = [up.http.get(f"/jobs/{one}", params={"wait": 20}).json() for one in accepted]
        assert {(job["status"], job["attempts"]) for job in ended} == {("done", 1)}
        assert up.http.get(f"/jobs/{running}/output").content == b"all of it\n"
        assert {name: pid for name, pid in up.pids.items() if pid != before[name]}.keys() == {"server"}
        assert len(up.entries(FULL)) == 1
        assert len(up.entries("embedded server restarted")) == 1


def submit(up: Up, command: str) -> str:
    answer = up.http.post("/jobs", json={"command": command})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def submitted_until_full(up: Up) -> Iterator[str]:
    """Submit jobs of some size until one is refused; yields those that were accepted."""
    for _ in range(1_000):
        answer = up.http.post("/jobs", json={"command": "true", "env": {"PAYLOAD": "x" * 2_000}})
        if answer.status_code != 201:
            assert answer.status_code == 503, answer.text
            return
        yield answer.json()["id"]
    raise AssertionError("the disk is not full")
