"""What things cost when there is much of everything: requests, scripts, the event loop and a server that is idle.

Each stage fills a server with much of one kind through the API, then asks what users ask. What is noted is the longest
of each kind, so other load on the machine makes it worse.
"""

import time
from collections.abc import Iterable
from typing import Final

from bench.plan import Plan
from bench.running import RunError
from bench.world import World
from workron.redis.keys import Keys

QUEUES: Final = 50_000
WORKERS: Final = 10_000
KEYS: Final = 100_000
JOBS: Final = 1_000_000
EDGES: Final = 10_000
MEBIBYTE: Final = 1 << 20
IDLE_S: Final = 10.0
WORK_S: Final = 120.0
TIMES: Final = 3

LISTS: Final = ("/jobs?status=pending", "/jobs?status=failed", "/jobs?status=running", "/jobs?limit=100", "/queues")


def measure(plan: Plan, turn: int) -> None:
    if turn > 0:  # once: it takes minutes, and compares with itself
        return
    for stage in (queues, workers, keys, jobs, edges, large, bulk):
        title = stage.__name__
        with World.on(plan) as world:
            try:
                stage(world, plan)
            except RunError as error:
                plan.results.note(f"limits, {title}: {error}")
                plan.say(f"  {title}: {error}")
                continue
            name, script_ms = world.longest_script()
            plan.results.add("longest request, ms", title, world.request_ms)
            plan.results.add("event loop stopped, ms", title, world.stopped_ms)
            plan.results.add("longest script there but for the slowest 1 %, ms", title, script_ms)
            plan.say(f"  {title}: request {world.request_ms:.0f} ms ({world.request}), loop {world.stopped_ms:.0f} ms,")
            plan.say(f"    script {script_ms:.1f} ms ({name})")
    plan.server.clear()


def queues(world: World, plan: Plan) -> None:
    """Each with a job that waits."""
    number = plan.scaled(QUEUES, least=500)
    world.submit([{"command": "true", "queue": f"tenant-{at}"} for at in range(number)])
    _asked(world, (*LISTS, "/jobs?queue=tenant-7", "/health"))
    _idle(plan, f"{number:,} queues")


def workers(world: World, plan: Plan) -> None:
    number = plan.scaled(WORKERS, least=500)
    for at in range(number):
        world.send("POST", "/workers/register", {"id": f"w-{at}"})
    [job] = world.submit([{"command": "true"}])
    _asked(world, (*LISTS, "/workers", f"/jobs/{job}/explain"))
    _idle(plan, f"{number:,} workers")


def keys(world: World, plan: Plan) -> None:
    """Concurrency keys with two waiting jobs each."""
    number = plan.scaled(KEYS, least=500)
    each = [{"command": "true", "concurrency": {"key": f"k{at % number}", "limit": 1}} for at in range(2 * number)]
    world.submit(each)
    _asked(world, LISTS)
    _idle(plan, f"{number:,} concurrency keys")


def jobs(world: World, plan: Plan) -> None:
    number = plan.scaled(JOBS, least=5_000)
    for _ in range(0, number, EDGES):
        world.submit([{"command": "true"}] * min(EDGES, number))
    _asked(world, LISTS)
    _idle(plan, f"{number:,} jobs that wait")


def edges(world: World, plan: Plan) -> None:
    number = plan.scaled(EDGES, least=500)
    parents = world.submit([{"command": "true"}] * number)
    for _ in range(50):
        world.submit([{"command": "true", "depends_on": parents}])
    _asked(world, ("/jobs?limit=50", "/jobs?status=blocked", "/queues"))


def large(world: World, plan: Plan) -> None:
    """Jobs of about 1 MiB: answers stream large data, the rest must not wait for it."""
    number = plan.scaled(150, least=20)
    for _ in range(number):
        world.submit([{"command": "x" * (MEBIBYTE - 1)}])
    with world.watched():
        for at in range(TIMES):
            asked = {"worker_id": f"w-{at}", "queues": ["default"], "limit": 150, "request_id": "r1"}
            world.send("POST", "/claims", asked)
            world.send("GET", "/jobs?limit=1000")


def bulk(world: World, plan: Plan) -> None:
    """Submissions of as much as one may hold."""
    number = plan.scaled(50_000, least=2_000)
    chain = [{"name": f"n{at}", "command": "true", "depends_on": [f"n{at - 1}"] if at else []} for at in range(number)]
    with world.watched():
        world.send("POST", "/jobs/bulk", {"jobs": [{"command": "true"}] * number})
        world.send("POST", "/workflows", {"name": "chain", "jobs": chain})
        world.send("POST", "/jobs", {"command": "true", "array": {"values": [str(at) for at in range(20 * number)]}})


def _asked(world: World, paths: Iterable[str]) -> None:
    with world.watched():
        for path in paths:
            for _ in range(TIMES):
                world.ask("GET", path)
        for _ in range(TIMES):
            world.ask("POST", "/jobs", {"command": "true"})


def _idle(plan: Plan, name: str) -> None:
    """Leave the server alone with a running reaper, once that has done all its work."""
    server = plan.server
    _wait_for_the_reaper(plan)
    before, began = server.usage(), time.perf_counter()
    time.sleep(IDLE_S)  # the measured time: how much CPU an idle server takes
    share = server.usage().since(before).cpu_s / (time.perf_counter() - began) * 100
    plan.results.add("idle server, % of a core", name, share)
    plan.say(f"  idle with {name}: {share:.2f} % of a core")


def _wait_for_the_reaper(plan: Plan) -> None:
    """Wait until nothing is due, no walk is left and no submission is open. Between two passes nothing moves either."""
    client, keys = plan.server.client, Keys("default")
    deadline = time.monotonic() + WORK_S
    while client.exists(keys.propagate, keys.batches, keys.arrays) or client.zcount(keys.due, 0, time.time() * 1000):
        if time.monotonic() > deadline:
            raise RunError(f"the reaper still has work after {WORK_S:.0f} s")
        time.sleep(0.1)  # another process' work
