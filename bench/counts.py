"""`python -m bench.counts`: what a job takes, in numbers that do not depend on the machine, held against a budget.

Commands and round trips of the server, bytes of a waiting job, and calls of Python functions in client and worker.
Exits with 1 when one is over `budget.json`; `--write` makes the present numbers, and a tenth more, the budget.
"""

import argparse
import asyncio
import json
import math
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Final

from bench.idle import Bench, one_by_one
from bench.quiet import quiet
from bench.server import Server
from bench.settings import settings_for
from workron.store import Store

BUDGET: Final = Path(__file__).with_name("budget.json")
JOBS: Final = 2_000
_MARGIN: Final = 1.1


class Calls:
    """Counts calls of Python and built-in functions in this thread, while it is a context."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> "Calls":
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _seen(self, _frame: FrameType, event: str, _argument: Any) -> None:
        if event in ("call", "c_call"):
            self.count += 1


async def at_depth(server: Server, jobs: int) -> dict[str, float]:
    """Submit in bulk without a worker, then drain."""
    settings = settings_for(server.url)
    # Each step on connections of its own: their buffers in the server are gone when its memory is read.
    async with Store.connect(settings) as store:
        bench = Bench(store)
        await bench.submit(50)
        async with bench.working(settings):  # scripts are assembled and loaded then
            await bench.wait(50)
    server.flush()
    start = server.usage()
    async with Store.connect(settings) as store:
        with Calls() as submitting:
            await Bench(store).submit(jobs)
    submitted = server.usage()
    async with Store.connect(settings) as store:
        bench = Bench(store)
        with Calls() as draining:
            async with bench.working(settings):
                await bench.wait(jobs)
                await asyncio.sleep(0.05)
        drained = server.usage()
    submit, drain = submitted.since(start), drained.since(submitted)
    return {
        "bytes per waiting job": submit.memory / jobs,
        "commands per job, submit": submit.commands / jobs,
        "commands per job, drain": drain.commands / jobs,
        "round trips per job at depth": (submit.reads + drain.reads) / jobs,
        "function calls per job, submit": submitting.count / jobs,
        "function calls per job, drain": draining.count / jobs,
    }


def count(server: Server, jobs: int = JOBS) -> dict[str, float]:
    """Return all counts."""
    server.clear()
    found = asyncio.run(at_depth(server, jobs))
    server.clear()
    single = max(20, jobs // 20)
    usage = asyncio.run(one_by_one(server, single))
    found["commands per job when idle"] = usage.commands / single
    found["round trips per job when idle"] = usage.reads / single
    return found


def over(found: dict[str, float], budget: dict[str, float]) -> list[str]:
    """Return a line for each count that is over its budget or has none."""
    lines = [f"{name}: no budget" for name in found if name not in budget]
    lines += [f"{name}: not counted any more" for name in budget if name not in found]
    both = [(name, value, budget[name]) for name, value in found.items() if name in budget]
    return lines + [f"{name}: {value:.3f} is over {limit:.3f}" for name, value, limit in both if value > limit]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.counts", description=__doc__)
    parser.add_argument("--server", choices=("redis", "valkey"), default="valkey")
    parser.add_argument("--write", action="store_true", help="write the budget")
    options = parser.parse_args()
    quiet()
    with Server(options.server) as server:
        found = count(server)
    if options.write:
        budget = {name: math.ceil(value * _MARGIN * 1000) / 1000 for name, value in found.items()}
        BUDGET.write_text(json.dumps(budget, indent=2) + "\n")
    budget = json.loads(BUDGET.read_text())
    for name, value in found.items():
        print(f"{name:34} {value:10.3f}  of {budget.get(name, math.nan):10.3f}")
    complaints = over(found, budget)
    print("\n".join(complaints) or "within the budget", file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
