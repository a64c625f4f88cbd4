"""Run seeds until one fails: `python -m tests.simulation`."""

import argparse
import os
import re
import sys
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing import get_context

from tests.simulation.fault_plan import Course
from tests.simulation.mutants import PLANTS, PLANTS_IN_OUTAGES
from tests.simulation.run import Verdict, run

EXAMPLES = """\
examples:
  python -m tests.simulation                             a hundred seeds
  python -m tests.simulation --seeds 100000 --jobs 2     a long run on two cores
  python -m tests.simulation --seed 4711                 one seed again, with all that happened to its jobs
  python -m tests.simulation --plant unique-leaked       a bug is built in: how soon is it found?
  python -m tests.simulation --course outage             Redis is away and clocks jump, and nothing else goes wrong

Exits with 1 if a seed has failed (with --plant: if none has).
"""
LAST = 40
"""So many of the last calls are printed."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description="Simulates Workron in virtual time, under faults that follow from a seed.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=100, metavar="N", help="how many seeds to run (default 100)")
    parser.add_argument("--first", type=int, default=0, metavar="S", help="the first one of them (default 0)")
    parser.add_argument("--seed", type=int, metavar="S", help="run this one alone, and print its trace")
    plants = sorted({**PLANTS, **PLANTS_IN_OUTAGES})
    parser.add_argument("--plant", choices=plants, help="build in a bug, and stop when it is found")
    parser.add_argument(
        "--course",
        type=Course,
        choices=[*Course],
        help="storm: everything goes wrong (the default); outage: only Redis is away, and clocks jump",
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes that run seeds (default 1)")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first seed that fails")
    options = parser.parse_args()
    if options.seed is not None:
        verdict = run(options.seed, options.plant, course=options.course, traced=True)
        show(verdict, options.plant, options.course)
        return int(bool(verdict.problems))
    seeds = range(options.first, options.first + options.seeds)
    failed = run_all(seeds, options.plant, options.course, options.jobs, keep_going=options.keep_going)
    return int(bool(failed) != bool(options.plant))


def run_all(seeds: range, plant: str | None, course: Course | None, jobs: int, *, keep_going: bool) -> list[int]:
    """Run seeds and say how it went; returns those that failed."""
    failed: list[int] = []
    number, calls, lived, since = 0, 0, 0, time.monotonic()
    for verdict in _verdicts(seeds, plant, course, jobs):
        number, calls, lived = number + 1, calls + verdict.calls, lived + verdict.jobs
        if number % 250 == 0:
            print(f"… {number:,} seeds, {len(failed)} of them failed", flush=True)
        if verdict.problems:
            failed.append(verdict.seed)
            show(verdict, plant, course)
            if not keep_going:
                break
    took_s = time.monotonic() - since
    print(f"{number:,} seeds with {lived:,} jobs and {calls:,} calls in {took_s:.1f} s: {len(failed)} failed")
    return failed


def _verdicts(seeds: range, plant: str | None, course: Course | None, jobs: int) -> Iterator[Verdict]:
    if jobs == 1:
        yield from (run(seed, plant, course=course) for seed in seeds)
        return
    with get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(partial(run, plant=plant, course=course), seeds, chunksize=8)


def show(verdict: Verdict, plant: str | None, course: Course | None) -> None:
    """Print what was wrong, what happened to the jobs that are named in it, and what happened last."""
    about = f"seed {verdict.seed}: {verdict.jobs} jobs, {verdict.calls:,} calls, {verdict.took_s:.0f} s of virtual time"
    print(f"{about}, digest {verdict.digest:08x}: {'FAILED' if verdict.problems else 'good'}")
    for problem in verdict.problems:
        print(f"  {problem}")
    named = set(re.findall(r"\b[0-9A-Za-z]{22}\b", " ".join(verdict.problems)))
    first_last = len(verdict.trace) - LAST
    for place, (at_s, who, what, outcome) in enumerate(verdict.trace):
        concerns = what.startswith("***") or any(job_id in f"{what} {outcome}" for job_id in named)
        if concerns or place >= first_last:
            print(f"  {at_s:9.4f} {who:9} {what} → {outcome}")
    if verdict.problems:
        how = f" --course {course}" if course else ""
        how += f" --plant {plant}" if plant else ""
        print(f"Again: python -m tests.simulation --seed {verdict.seed}{how}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:
        os._exit(1)
