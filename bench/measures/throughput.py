"""Bulk enqueue and drain of no-op jobs by one worker process, with what they cost the server.

A job counts when its body runs: it writes one byte to a pipe. The rate is that of the bytes after the first look at
the pipe, so the start of the program does not count. The server's work is counted from before the worker's start until
nothing is sent any more.
"""

from bench.checks import check_drained
from bench.peers import Installed
from bench.plan import Plan
from bench.running import RunError
from bench.server import Usage


def measure(plan: Plan, turn: int) -> None:
    systems = list(plan.systems)
    # Another order each round, so that drift of the machine hits all alike.
    shift = turn % len(systems)
    for system in systems[shift:] + systems[:shift]:
        try:
            _one(plan, system)
        except RunError as error:
            plan.results.note(f"throughput: {error}")
            plan.say(f"  {system.name}: {error}")


def _one(plan: Plan, system: Installed) -> None:
    server, results, name = plan.server, plan.results, system.name
    jobs = plan.scaled(system.system.drain, least=1000)
    server.clear()
    _warm(plan, system)
    before = server.usage()
    enqueued = plan.runner.enqueue(system, "bulk", jobs)
    server.settle()
    submit = server.usage().since(before)
    results.add("bulk enqueue", name, enqueued["jobs"] / enqueued["seconds"])
    results.add("memory", name, submit.memory / jobs)

    before = server.usage()
    with plan.runner.worker(system):
        counted, seconds = plan.runner.pipe.count(jobs)
        server.settle()
        drain = server.usage().since(before)
    if counted < jobs / 10:
        raise RunError(f"{name}: {jobs} jobs are too few to measure")
    rate = counted / seconds
    results.add("drain", name, rate)
    _add_costs(plan, name, jobs, submit, drain)
    if system is plan.ours:
        check_drained(plan, jobs)
    plan.say(f"  {name}: bulk {enqueued['jobs'] / enqueued['seconds']:,.0f}/s, drain {rate:,.0f}/s")


def _warm(plan: Plan, system: Installed) -> None:
    """Have scripts and buffers in the server's memory before it is measured."""
    plan.runner.enqueue(system, "bulk", 20)
    plan.server.settle()
    plan.server.flush()


def _add_costs(plan: Plan, name: str, jobs: int, submit: Usage, drain: Usage) -> None:
    add = plan.results.add
    for phase, usage in (("submit", submit), ("drain", drain)):
        add(f"server cpu {phase}", name, usage.cpu_s / jobs * 1e6)
        add(f"commands {phase}", name, usage.commands / jobs)
        add(f"round trips {phase}", name, usage.reads / jobs)
    add("server cpu", name, (submit.cpu_s + drain.cpu_s) / jobs * 1e6)
    add("round trips", name, (submit.reads + drain.reads) / jobs)
