"""Ctrl-C at any moment of a command."""

import signal
import subprocess
import sys

import pytest

from tests.command_line import CommandLine

INTERRUPTED = """
import atexit, os, signal, sys
from workron.__main__ import main

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

class AtImport:
    def find_spec(self, name, path, target=None):
        if name == moment:
            sys.meta_path.remove(self)
            interrupt()

moment = sys.argv.pop(1)
if moment == "exit":
    atexit.register(interrupt)
sys.meta_path.insert(0, AtImport())
main()
"""


@pytest.mark.parametrize("moment", ["workron.cli.app", "click", "workron.cli.listing", "workron.client", "exit"])
def test_an_interrupt_before_or_after_the_command_itself_is_no_traceback(scripted: CommandLine, moment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, moment, "run", "true"],
        capture_output=True,
        env=scripted.env,
        cwd=scripted.cwd,
        timeout=60,
    )

    assert done.returncode in (130, -signal.SIGINT)
    assert b"Traceback" not in done.stderr
    assert b"Aborted" not in done.stderr


def test_an_interrupt_that_the_parent_has_ignored_does_not_end_a_command(scripted: CommandLine) -> None:
    script = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + INTERRUPTED
    done = subprocess.run(
        [sys.executable, "-c", script, "workron.cli.app", "show", "nope"],
        capture_output=True,
        env=scripted.env,
        cwd=scripted.cwd,
        timeout=60,
    )

    assert done.returncode == 3
