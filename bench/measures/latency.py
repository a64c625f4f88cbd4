"""Idle latency: from the call that submits a job to the first line of its body, one job at a time.

Submitter and job read the same clock. The worker has nothing else to do, and the pause between two jobs is much longer
than a job takes.
"""

import statistics

from bench.plan import Plan
from bench.running import RunError

JOBS = 150
PAUSE_MS = 40


def measure(plan: Plan, turn: int) -> None:
    systems = list(plan.systems)
    shift = turn % len(systems)
    jobs = plan.scaled(JOBS)
    for system in systems[shift:] + systems[:shift]:
        plan.server.clear()
        try:
            # A first no-op job: the worker is up, and its scripts are loaded.
            plan.runner.enqueue(system, "bulk", 20)
            with plan.runner.worker(system):
                plan.runner.pipe.count(20)
                plan.server.settle()
                answer = plan.runner.enqueue(system, "paced", jobs, PAUSE_MS)
                started = plan.runner.pipe.stamps(jobs)
        except RunError as error:
            plan.results.note(f"latency: {error}")
            continue
        waits = [(started[number] - moment) / 1e6 for number, moment in enumerate(answer["submitted_ns"])]
        p50, p99 = percentiles(waits)
        plan.results.add("latency p50", system.name, p50)
        plan.results.add("latency p99", system.name, p99)


def percentiles(values: list[float]) -> tuple[float, float]:
    """Return the 50th and the 99th percentile."""
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[98]
