"""`python leaping_clock.py FILE python -m workron …`: that, on a machine that was suspended for as long as FILE says.

What it says (seconds) is added to CLOCK_BOOTTIME, which goes on in suspend; the monotonic clock stands still then, and
so do timers. The guardian of a worker is on the same machine.
"""

import runpy
import sys
import time
from pathlib import Path

GUARDIAN = f"""
import runpy, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.faults import leaping_clock
leaping_clock.leap({{file!r}})
sys.argv[0] = {{program!r}}
runpy.run_path({{program!r}}, run_name="__main__")
"""


def leap(file: str) -> None:
    """Have CLOCK_BOOTTIME be ahead by what the file says at any time."""
    right = time.clock_gettime

    def clock_gettime(clock: int) -> float:
        return right(clock) + (float(Path(file).read_text() or 0) if clock == time.CLOCK_BOOTTIME else 0)

    time.clock_gettime = clock_gettime


def take_the_guardian_along(file: str) -> None:
    """Have the worker start a guardian that sees the same clock."""
    from workers import guardian_link

    program = Path(file).with_name("leaping-guardian.py")
    program.write_text(GUARDIAN.format(file=file, program=str(guardian_link._PROGRAM)))
    guardian_link._PROGRAM = program


if __name__ == "__main__":
    leap(sys.argv[1])
    take_the_guardian_along(sys.argv[1])
    del sys.argv[1:5]
    runpy.run_module("workron", run_name="__main__")
