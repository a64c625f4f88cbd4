"""`workron demo`: a tour of half a minute in which a job outlives its worker.

It starts a stack of its own, which no other command takes for the user's, and does through the API what its reader
could do by the commands that it shows.
"""

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from workron import demo_stack, workflow_file
from workron.cli import moments
from workron.cli.exits import Exit, notice
from workron.cli.listing import TERMINAL
from workron.demo_screen import Jobs, Screen
from workron.demo_stack import HEARTBEAT_S, LEASE_S, NAMESPACE, Pause, Stack
from workron.documents import JobDoc
from workron.errors import WorkronError
from workron.keys import Keys
from workron.local import birth
from workron.signals import StopSignals, happens

WORKFLOW: Final = """\
# The sum of 1, 2, … 300: three jobs add up a hundred numbers each, the last one adds up their sums.
name: sums
jobs:
  - name: numbers
    command: sleep 1; seq 300 > numbers

  - name: sum-1  # takes long enough to lose its worker
    depends_on: [numbers]
    command: |
      echo "attempt $WORKRON_ATTEMPT, fence $WORKRON_FENCE, pid $$"
      sleep 8
      sed -n 1,100p numbers | awk '{ sum += $1 } END { print sum }' > sum-1

  - name: sum-2  # fails the first time
    depends_on: [numbers]
    command: |
      sleep 1
      test "$WORKRON_ATTEMPT" -gt 1 || exit 3
      sed -n 101,200p numbers | awk '{ sum += $1 } END { print sum }' > sum-2

  - name: sum-3
    depends_on: [numbers]
    command: sleep 1; sed -n 201,300p numbers | awk '{ sum += $1 } END { print sum }' > sum-3

  - name: total
    depends_on: [sum-1, sum-2, sum-3]
    command: sleep 1; cat sum-1 sum-2 sum-3 | awk '{ sum += $1 } END { print "1 + 2 + ... + 300 = " sum }'
"""
_PICTURE: Final = """\
        ┌─ sum-1 ─┐
numbers ┼─ sum-2 ─┼ total
        └─ sum-3 ─┘
"""
_FILE: Final = "sums.yaml"
_VICTIM: Final = "sum-1"
_HALF_S: Final = 4.0
"""Half the time that the victim's command takes."""
_LOOK_S: Final = 0.1
_GLANCE_S: Final = 0.005
_PATIENCE_S: Final = 60.0


class TourFailed(WorkronError):
    """The tour did not go as it should; the message says where it ended."""


class _Interrupted(Exception):  # noqa: N818 - it is no error
    """The user has seen enough."""


class _Attempt(NamedTuple):
    """What the victim's command says of itself; the first two stand in its environment."""

    number: int
    fence: int
    pid: int


def run() -> int:
    """Make the tour; returns the exit code."""
    try:
        return asyncio.run(_run())
    except (_Interrupted, KeyboardInterrupt):
        notice("interrupted; everything is stopped and removed")
        return Exit.INTERRUPTED


async def _run() -> int:
    began_s = time.monotonic()
    with StopSignals() as stop, Screen(LEASE_S) as screen:

        async def pause(seconds: float) -> None:
            if await happens(stop.stopping, within_s=seconds):
                raise _Interrupted

        async def starting(seconds: float) -> None:
            screen.waiting(f"starting … {_since(began_s)}")
            await pause(seconds)

        _introduce(screen)
        async with demo_stack.running(starting) as stack:
            screen.done(f"Ready after {_since(began_s)}, at {stack.url}.")
            try:
                await Tour(stack, screen, pause).make()
            finally:
                screen.waiting("stopping everything …")
        screen.done(f"Everything is stopped and removed. The tour took {_since(began_s)}.")
        _say_goodbye(screen)
    return Exit.OK


def _introduce(screen: Screen) -> None:
    screen.title("Workron: the job outlives its worker")
    screen.say(
        "Half a minute: five jobs that depend on each other are submitted, a worker is killed in the middle of one of "
        "them, and all five are done in the end."
    )
    screen.step("Start", "Redis (an embedded Valkey), the API, the reaper and two workers, in a temporary directory.")


def _say_goodbye(screen: Screen) -> None:
    workron = "uv run workron" if "UV_RUN_RECURSION_DEPTH" in os.environ else "workron"
    screen.say("To go on, start one that stays, and from another terminal give it something to do:")
    screen.command(f"{workron} up")
    screen.command(f"{workron} run -- echo hello")


class Tour:
    """The steps, in order, on a stack that is ready."""

    def __init__(self, stack: Stack, screen: Screen, pause: Pause) -> None:
        self._stack = stack
        self._client = stack.client
        self._screen = screen
        self._pause = pause
        self._workflow_id = ""

    async def make(self) -> None:
        """Go through all steps; TourFailed, or what the client raises, if one does not work."""
        self._invite()
        self._submit()
        first = await self._run()
        killed_at = await self._kill(first)
        await self._recover(first, killed_at)
        await self._finish()

    def _invite(self) -> None:
        (self._stack.home / _FILE).write_text(WORKFLOW)
        self._screen.say("All commands shown below work in a second terminal while the tour runs, after this one:")
        self._screen.command(f"cd {self._stack.home} && . ./env")

    def _submit(self) -> None:
        screen = self._screen
        screen.step("Submit", "Five jobs, stored all or none; each one waits for those it depends on.")
        screen.picture(_PICTURE)
        screen.command(f"workron workflow submit {_FILE}")
        document = workflow_file.parse(WORKFLOW, ".yaml", source=_FILE)
        for job in document["jobs"]:
            job["cwd"] = str(self._stack.home)
        began_s = time.monotonic()
        self._workflow_id = self._client.submit_workflow(document)["id"]
        screen.done(f"Accepted after {_since(began_s)}: now it is on disk, and every job will come to an end.")
        screen.command(f"workron workflow show {self._workflow_id}")

    async def _run(self) -> _Attempt:
        """Wait until the victim's command is half done."""
        self._screen.step(
            "Run",
            f"A worker holds a job by a lease of {LEASE_S:g} s, and renews it every {HEARTBEAT_S:g} s for as long as "
            "it lives.",
        )
        job = (await self._until(f"{_VICTIM} runs", lambda jobs: jobs[_VICTIM]["status"] == "running"))[_VICTIM]
        self._screen.command("redis-cli -s $SOCKET", f"PTTL '{Keys(NAMESPACE).heartbeat(job['id'])}'")
        self._screen.command(f"workron logs {job['id']}")
        attempt = await self._says(job)
        await self._until(f"{_VICTIM} is half done", lambda jobs: _age_s(jobs[_VICTIM]) >= _HALF_S)
        return attempt

    async def _kill(self, attempt: _Attempt) -> datetime:
        """Kill the victim's worker; returns when."""
        screen, job = self._screen, self._look()[_VICTIM]
        if (job["status"], job["attempts"]) != ("running", attempt.number):
            raise TourFailed(f"{_VICTIM} ended before its worker was killed: this machine is too busy for the tour")
        [pid] = [worker["pid"] for worker in self._client.workers() if worker["id"] == job["worker"]]
        screen.step("Kill", f"{_VICTIM} is half done when its worker gets the signal that no process can catch.")
        screen.command('curl -H "Authorization: Bearer $WORKRON_API_KEY" $WORKRON_URL/workers')
        screen.answer(f"{job['worker']} is process {pid}")
        screen.command(f"kill -9 {pid}")
        born, began_s, killed_at = birth(attempt.pid), time.monotonic(), datetime.now(UTC)
        os.kill(pid, signal.SIGKILL)
        while born and birth(attempt.pid) == born and time.monotonic() < began_s + LEASE_S:
            await self._pause(_GLANCE_S)
        screen.blow(f"Killed. {_since(began_s)} later its command was dead, too: that is its guardian's task.")
        return killed_at

    async def _recover(self, first: _Attempt, killed_at: datetime) -> None:
        screen = self._screen
        screen.step(
            "Recover", "Nobody renews the lease now. When it is over, the reaper puts the job back into its queue."
        )
        jobs = await self._until(f"{_VICTIM} runs again", lambda jobs: _runs_again(jobs[_VICTIM], first.number))
        job = jobs[_VICTIM]
        noticed_s = (moments.parse(job["started_at"] or "") - killed_at).total_seconds()
        screen.done(f"Lost worker noticed after {noticed_s:.1f} s: {job['worker']} runs {_VICTIM} now.")
        screen.command(f"workron logs {job['id']}")
        second = await self._says(job)
        if second.fence <= first.fence:
            raise TourFailed(f"the fence did not grow: {first.fence}, then {second.fence}")
        screen.say("The fence has grown: whatever the first attempt might still say is refused.")

    async def _finish(self) -> None:
        screen = self._screen
        jobs = await self._until("all jobs have ended", lambda jobs: all(map(_ended, jobs.values())))
        if bad := [f"{name} is {job['status']}" for name, job in jobs.items() if job["status"] != "done"]:
            raise TourFailed(f"not every job is done: {', '.join(bad)}")
        screen.step("Sum up", self._sum_up(jobs))
        screen.table(jobs)
        screen.command(f"workron logs {jobs['total']['id']}")
        screen.answer(self._output(jobs["total"]).strip())

    def _sum_up(self, jobs: Jobs) -> str:
        attempts = sum(job["attempts"] for job in jobs.values())
        lost = sum(how == "worker lost" for how in self._screen.history.values())
        failed = attempts - len(jobs) - lost
        return (
            f"{len(jobs)} jobs, each done exactly once, in {attempts} attempts: "
            f"{failed} failed by itself, {lost} was lost with its worker."
        )

    async def _says(self, job: JobDoc) -> _Attempt:
        """Return what the command of this attempt says of itself, and show it."""
        pattern = re.compile(rf"attempt ({job['attempts']}), fence (\d+), pid (\d+)\n")
        await self._until(f"{_VICTIM} says something", lambda _: pattern.match(self._output(job)) is not None)
        found = pattern.match(self._output(job))
        if not found:
            raise TourFailed(f"{_VICTIM} took back what it said")
        self._screen.answer(found[0].strip())
        return _Attempt(*map(int, found.groups()))

    def _output(self, job: JobDoc) -> str:
        return b"".join(self._client.output(job["id"])).decode(errors="replace")

    async def _until(self, what: str, condition: Callable[[Jobs], bool]) -> Jobs:
        """Show the jobs until the condition holds for them."""
        give_up_at_s = time.monotonic() + _PATIENCE_S
        while not condition(jobs := self._look()):
            self._stack.check()
            if time.monotonic() > give_up_at_s:
                raise TourFailed(f"waited {_PATIENCE_S:g} s in vain until {what}")
            await self._pause(_LOOK_S)
        return jobs

    def _look(self) -> Jobs:
        jobs = {job["name"] or "": job for job in self._client.workflow(self._workflow_id)["jobs"]}
        self._screen.show(jobs)
        return jobs


def _runs_again(job: JobDoc, attempt: int) -> bool:
    return job["status"] == "running" and job["attempts"] > attempt


def _ended(job: JobDoc) -> bool:
    return job["status"] in TERMINAL


def _age_s(job: JobDoc) -> float:
    """Return how long ago the latest attempt started."""
    return (datetime.now(UTC) - moments.parse(job["started_at"])).total_seconds() if job["started_at"] else 0.0


def _since(began_s: float) -> str:
    passed_s = time.monotonic() - began_s
    return f"{passed_s:.1f} s" if passed_s >= 1 else f"{passed_s * 1000:.0f} ms"
