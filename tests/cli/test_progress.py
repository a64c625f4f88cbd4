"""Progress on a terminal: what is shown on stderr, and that nothing is shown elsewhere."""

import os
import pty
import subprocess
import sys

import pytest

from tests.command_line import read_terminal

STEPS = """
import sys
from workron.cli import progress
progress._FROM_S = progress._EVERY_S = {from_s}
with progress.Progress() as shown:
    for at in range(1, 4):
        shown.show("checking keys", at * 1000, {total})
print("rich" in sys.modules)
"""


def run(from_s: float, total: int, *, terminal: bool) -> tuple[str, str]:
    """Return stdout, and what stderr shows; if it is to be a terminal."""
    program = [sys.executable, "-c", STEPS.format(from_s=from_s, total=total)]
    if not terminal:
        done = subprocess.run(program, capture_output=True, text=True, check=True)
        return done.stdout, done.stderr
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=theirs, text=True, env=environment) as process:
        os.close(theirs)
        shown = b"".join(read_terminal(ours))
        os.close(ours)
        out, _ = process.communicate(timeout=60)
    return out, shown.decode()


def test_progress_is_shown_on_a_terminal_and_disappears_at_the_end() -> None:
    out, shown = run(0, 3000, terminal=True)
    assert out == "True\n"
    assert "checking keys" in shown
    assert "3,000 of 3,000" in shown
    assert shown.endswith("\x1b[2K"), "the line is cleared"


def test_an_unknown_total_is_not_shown() -> None:
    _, shown = run(0, 0, terminal=True)
    assert "3,000" in shown
    assert " of " not in shown


@pytest.mark.parametrize(("from_s", "terminal"), [(0, False), (1000, True)])
def test_nothing_is_shown_where_there_is_no_terminal_nor_for_what_ends_soon(from_s: float, terminal: bool) -> None:
    assert run(from_s, 3000, terminal=terminal) == ("False\n", "")
