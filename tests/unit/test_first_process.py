"""What process 1 of a container without an init does. A subreaper gets orphans too."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.patience import Patience

AS_FIRST = """
import ctypes, os, sys
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
from workron.runtime import first_process
first_process.divide()
os.execvp(sys.argv[1], sys.argv[1:])
"""


@contextmanager
def as_first(script: str) -> "Iterator[subprocess.Popen[bytes]]":
    program = [sys.executable, "-c", AS_FIRST, "sh", "-c", script]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        yield first


def line_of(process: "subprocess.Popen[bytes]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


def test_what_a_command_leaves_behind_is_reaped() -> None:
    with as_first("(sleep 0 & echo $!); read -r _; exit 7") as first:
        orphan = Path("/proc", line_of(first))
        patience = Patience(30)
        while orphan.exists() and not patience.is_over:
            time.sleep(0.01)
        assert not orphan.exists()
        first.communicate(b"\n")
    assert first.returncode == 7


def test_a_signal_is_passed_on() -> None:
    with as_first("trap 'exit 8' TERM; echo ready; while :; do sleep 0.05; done") as first:
        assert line_of(first) == "ready"
        first.terminate()
    assert first.returncode == 8


def test_an_end_by_a_signal_has_the_exit_code_that_a_shell_gives() -> None:
    with as_first("kill -KILL $$") as first:
        pass
    assert first.returncode == 128 + 9
