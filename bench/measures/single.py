"""Enqueueing one job after the other, each call awaited, by one client."""

from bench.plan import Plan
from bench.running import RunError

JOBS = 2_000


def measure(plan: Plan, turn: int) -> None:
    systems = list(plan.systems)
    shift = turn % len(systems)
    jobs = plan.scaled(JOBS, least=60)
    for system in systems[shift:] + systems[:shift]:
        plan.server.clear()
        try:
            answer = plan.runner.enqueue(system, "one", jobs)
        except RunError as error:
            plan.results.note(f"enqueue one by one: {error}")
            continue
        plan.results.add("enqueue one by one", system.name, answer["jobs"] / answer["seconds"])
