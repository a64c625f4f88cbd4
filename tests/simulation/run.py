"""One run: a seed becomes a world, a storm passes over it, and when it is over all must have ended well."""

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import fakeredis

from tests.consistency import Audit
from tests.simulation.chance import chance_of, quickly
from tests.simulation.fault_plan import LAST_ROLLBACK_S, STORM_S, Course
from tests.simulation.http import http_by
from tests.simulation.mutants import course_of, planted
from tests.simulation.timeline import Timeline
from tests.simulation.world import World

DRAIN_S: Final = 120.0
"""After the storm all jobs must have ended within this time: nobody starves."""
SETTLE_S: Final = 3.0
"""It has to be quiet for so long: calls that are late may still arrive, and what is left over is cleared away."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a seed."""

    seed: int
    problems: tuple[str, ...]
    calls: int
    """Commands that the server has run."""
    jobs: int
    took_s: float
    """Virtual time."""
    digest: int
    """The same for the same seed, and for no other."""
    trace: tuple[tuple[float, str, str, str], ...]


def run(seed: int, plant: str | None = None, *, course: Course | None = None, traced: bool = False) -> Verdict:
    """Run a seed from its beginning to its verdict; what happened is kept if it fails, or is to be `traced`.

    A bug that is built in has a course of its own, where it is found.
    """
    course = course or course_of(plant)
    timeline = Timeline()
    with ExitStack() as stack:
        for context in (timeline.patched(), planted(plant), chance_of(seed, timeline), quickly()):
            stack.enter_context(context)
        world = World(seed, timeline, course)
        stack.enter_context(http_by(world))
        world.start()
        timeline.run_until(STORM_S)
        world.calm()
        problems = _judge(world, _drain(world))
        world.end()
    trace = tuple(world.network.trace) if problems or traced else ()
    jobs, digest = len(world.history.told.jobs), world.network.digest
    return Verdict(seed, tuple(problems), world.server.calls, jobs, timeline.now, digest, trace)


def _drain(world: World) -> float:
    """Let time pass until nothing is left to do, and nothing comes any more; returns how long that took."""
    timeline, ends_at = world.timeline, STORM_S + DRAIN_S
    undone_until = STORM_S + LAST_ROLLBACK_S
    while timeline.now < ends_at and not (world.asked and timeline.now >= max(undone_until, world.network.late_until)):
        timeline.run_until(timeline.now + 1.0)  # what is put right before might be undone, or closed by a late call
    world.put_right()
    quiet_for_s = 0.0
    while timeline.now < ends_at and quiet_for_s < SETTLE_S:
        timeline.run_until(timeline.now + 1.0)
        quiet_for_s = quiet_for_s + 1.0 if world.is_quiet() else 0.0
    return timeline.now - STORM_S


def _judge(world: World, waited_s: float) -> list[str]:
    """Return what was broken of the promise, the first time that each was."""
    history = world.history
    problems = [
        *history.problems,
        *world.timeline.broken,
        *world.errors,
        *history.lost(),
        *world.witnesses.unreported(),
    ]
    unfinished = history.unfinished()
    problems += [f"{one} {waited_s:.0f} s after the storm" for one in unfinished]
    if not unfinished and not world.is_quiet():
        problems.append(f"something is still under way {waited_s:.0f} s after the storm")
    elif not unfinished:
        problems += [*history.amiss(), *_audited(world)]
    return list(dict.fromkeys(problems))


def _audited(world: World) -> list[str]:
    async def audit() -> list[str]:
        client = fakeredis.FakeAsyncRedis(server=world.server.fake, protocol=3)
        try:
            return await Audit(client, world.keys).problems()
        finally:
            await client.aclose()

    with world.timeline.as_host(world.server):
        return [f"audit: {problem}" for problem in asyncio.run(audit())]
