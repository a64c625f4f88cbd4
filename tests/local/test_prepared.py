"""Processes that are forked from `workron up`: each is like one that was started as a program."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.local.prepared_processes import LARGE, NAMES
from tests.local.probe import alive, wait_for
from tests.local_stack import ROOT
from workron.local import prepared

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")
PROGRAM = Path(__file__).with_name("prepared_processes.py")


class Ran:
    """The program after a run: its output, and what its processes found."""

    def __init__(self, folder: Path, scene: str) -> None:
        self.folder = folder
        environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
        self.done = subprocess.run(
            [sys.executable, "-W", "error::ResourceWarning", PROGRAM, folder, scene],
            env=environment,
            input=b"not for them",
            capture_output=True,
        )
        self.pids = [int(pid) for pid in (folder / "pids").read_text().split()]

    @property
    def codes(self) -> list[int]:
        codes: list[int] = json.loads((self.folder / "codes").read_text())
        return codes

    def found(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads((self.folder / name).read_text())
        return found


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    ran = Ran(tmp_path_factory.mktemp("prepared"), "run")
    assert ran.done.returncode == 0, ran.done.stderr
    return ran


def test_each_returns_its_own_exit_code(ran: Ran) -> None:
    assert ran.codes == [7, 7]
    assert not any(map(alive, ran.pids))


@pytest.mark.parametrize(("scene", "code"), [("raise", 1), ("kill", -signal.SIGKILL)])
def test_a_fault_or_a_signal_ends_it_as_it_ends_a_program(tmp_path: Path, scene: str, code: int) -> None:
    ran = Ran(tmp_path, scene)
    assert ran.codes == [code, code]
    assert ran.done.returncode == 0
    assert (b"RuntimeError: a fault of its own" in ran.done.stderr) == (scene == "raise")


def test_one_that_died_before_its_orders_has_an_exit_code(tmp_path: Path) -> None:
    ran = Ran(tmp_path, "died before")
    assert ran.codes == [-signal.SIGKILL, -signal.SIGKILL]
    assert (ran.done.returncode, ran.done.stderr) == (0, b"")


def test_output_that_was_not_written_yet_is_written_once(ran: Ran) -> None:
    assert ran.done.stdout == b"said once"
    assert ran.done.stderr == b""


@pytest.mark.parametrize("name", NAMES)
def test_it_has_no_descriptor_but_its_streams_and_those_it_was_given(ran: Ran, name: str) -> None:
    files = ran.found(name)["files"]
    given = ran.found(name)["variables"]["WORKRON_LIFELINE"].split(",")
    assert set(files) == {"0", "1", "2", *given}
    assert files["0"] == "/dev/null"
    assert files["1"] == files["2"]
    assert files[given[0]].startswith("pipe:")
    assert files[given[1]] == str(ran.folder / "children")


def test_a_limit_of_a_billion_files_does_not_hold_up_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without close_range(2), which Python lacks if built for an old system, each number costs a system call."""
    numbers, closed = sorted(map(int, os.listdir("/proc/self/fd"))), list[int]()
    monkeypatch.setattr(os, "sysconf", lambda _: 2**30)
    monkeypatch.setattr(os, "closerange", lambda low, high: closed.extend(range(low, min(high, low + 10_000))))
    monkeypatch.setattr(os, "close", closed.append)

    prepared.close_all_but(numbers[-1])

    assert len(closed) <= len(numbers) + 1
    assert not {0, 1, 2, numbers[-1]} & set(closed)


def test_its_environment_is_exactly_what_it_was_sent(ran: Ran) -> None:
    variables = dict(ran.found("one")["variables"])
    del variables["WORKRON_LIFELINE"]
    assert variables == {"PATH": "/bin", "EMPTY": "", "ÜMLAUT": "a=b\nc", **LARGE}


def test_it_leads_a_session_and_shows_its_name(ran: Ran) -> None:
    for name in NAMES:
        found = ran.found(name)
        assert found["pid"] == found["session"]
        assert found["title"] == f"workron {name}"
        assert "PYTHONUNBUFFERED" in found["shown variables"], "the title has overwritten the environment"


def test_its_signals_are_those_of_a_new_interpreter(ran: Ran) -> None:
    fresh = subprocess.run(
        [sys.executable, "-c", "from tests.local.prepared_processes import *; print(*state_of_signals(), sep='\\n')"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.found("one")["signals"] == fresh.stdout.splitlines()


def test_processes_do_not_share_their_random_numbers_and_ids(ran: Ran) -> None:
    one, two = map(ran.found, NAMES)
    assert one["random"] != two["random"]
    assert one["id"][-12:] != two["id"][-12:]


def test_it_imports_its_part_before_its_orders(ran: Ran) -> None:
    assert ran.found("one")["imported"]


@pytest.mark.parametrize("scene", ["no orders", "killed before"])
def test_without_orders_nothing_runs_and_nothing_is_left(tmp_path: Path, scene: str) -> None:
    ran = Ran(tmp_path, scene)
    assert ran.done.returncode == (0 if scene == "no orders" else -signal.SIGKILL)
    wait_for(lambda: not any(map(alive, ran.pids)), "their end")
    assert ran.done.stderr == b""
    assert not [name for name in NAMES if (tmp_path / name).exists()]
    assert not [pid for pid in ran.pids if (tmp_path / f"left {pid}").exists()], (
        "it ran what its parent does at its exit"
    )


def test_up_has_one_thread_and_no_descriptor_when_it_forks() -> None:
    """A fork copies one thread; locks that others hold would stay locked."""
    program = """
import os
import workron.local.supervisor
from workron.cli.process import import_shared
import_shared()
print(len(os.listdir("/proc/self/task")), sorted(map(int, os.listdir("/proc/self/fd")))[:-1])
"""
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout == "1 [0, 1, 2]\n"
