"""The tour: submit a workflow, kill the worker of a job, and watch the job recover."""

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from workron.amounts import counted
from workron.cli import moments
from workron.cli.demo.screen import Jobs, Screen
from workron.cli.demo.stack import HEARTBEAT_S, LEASE_S, NAMESPACE, Pause, Stack, running
from workron.cli.exits import Exit, notice
from workron.cli.listing import ending
from workron.cli.stream import TERMINAL
from workron.client import workflow_file
from workron.client.documents import JobDoc
from workron.errors import WorkronError
from workron.local.instances import birth
from workron.redis.keys import Keys
from workron.runtime.signals import StopSignals, happens

_WORKFLOW: Final = Path(__file__).with_name("sums.yaml")
_PICTURE: Final = """\
        ┌─ sum-1 ─┐
numbers ┼─ sum-2 ─┼ total
        └─ sum-3 ─┘
"""
_VICTIM: Final = "sum-1"
_MIDDLE_S: Final = 4.0
"""Runtime of the victim's command when its worker is killed; it takes 10 s."""
_LOOK_S: Final = 0.1
_GLANCE_S: Final = 0.002
_PATIENCE_S: Final = 60.0


class TourFailed(WorkronError):
    """The tour failed; the message says where."""


class _Interrupted(Exception):
    """The user has interrupted the tour."""


class _Attempt(NamedTuple):
    """The victim's command prints its attempt, fence and pid; it has them in its environment."""

    number: int
    fence: int
    pid: int
    worker: str


def run() -> int:
    """Run the tour; return the exit code."""
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
        async with running(starting) as stack:
            screen.done(f"Ready after {_since(began_s)}, at {stack.url}.")
            try:
                await Tour(stack, screen, pause).make()
            finally:
                screen.waiting("stopping everything …")
        screen.gap()
        screen.done(f"Everything is stopped and removed. The tour took {_since(began_s)}.")
        _say_goodbye(screen)
    return Exit.OK


def _introduce(screen: Screen) -> None:
    screen.title("Workron: a job outlives its worker")
    screen.say(
        "In half a minute: five jobs that depend on each other are submitted, a worker is killed in the middle of "
        "one, and in the end all five are done."
    )
    screen.step("Start", "Redis (as embedded Valkey), API and reaper, and two workers: ada and bob.")


def _say_goodbye(screen: Screen) -> None:
    workron = "uv run workron" if "UV_RUN_RECURSION_DEPTH" in os.environ else "workron"
    screen.step("Go on", "Start a permanent one, and give it work from another terminal.")
    screen.command(f"{workron} up")
    screen.command(f"{workron} run -- echo hello")
    screen.gap()


class Tour:
    """The steps, in order, on a stack that is ready."""

    def __init__(self, stack: Stack, screen: Screen, pause: Pause) -> None:
        self._stack = stack
        self._client = stack.client
        self._screen = screen
        self._pause = pause
        self._workflow_id = ""

    async def make(self) -> None:
        """Run all steps; raise TourFailed, or an error of the client, if one fails."""
        self._invite()
        await self._pause(self._screen.reading_s)
        self._submit()
        first = await self._run()
        killed_at = await self._kill(first)
        await self._recover(first, killed_at)
        await self._finish()

    def _invite(self) -> None:
        (self._stack.home / _WORKFLOW.name).write_bytes(_WORKFLOW.read_bytes())
        self._screen.say("Until the end, you can type the commands in a second terminal, after this:")
        self._screen.command(f"cd {self._stack.home} && . ./env")

    def _submit(self) -> None:
        screen = self._screen
        screen.step("Submit", "Five jobs, stored all or nothing; each waits for its dependencies.")
        screen.picture(_PICTURE)
        screen.command(f"workron workflow submit {_WORKFLOW.name}")
        document = workflow_file.parse(_WORKFLOW.read_text("utf-8"), _WORKFLOW.suffix, source=_WORKFLOW.name)
        for job in document["jobs"]:
            job["cwd"] = str(self._stack.home)
        began_s = time.monotonic()
        self._workflow_id = self._client.submit_workflow(document)["id"]
        screen.done(f"Accepted after {_since(began_s)}, and on disk: all of them will run, whatever crashes.")
        screen.command(f"workron workflow show {self._workflow_id}")

    async def _run(self) -> _Attempt:
        """Wait until the victim's command is in the middle of its work."""
        lease = f"a lease of {LEASE_S:g} s, which it renews every {HEARTBEAT_S:g} s"
        self._screen.step("Run", f"A worker holds a job by {lease}.")
        job = (await self._until(f"{_VICTIM} runs", lambda jobs: jobs[_VICTIM]["status"] == "running"))[_VICTIM]
        self._screen.command("redis-cli -s $SOCKET", f"PTTL '{Keys(NAMESPACE).heartbeat(job['id'])}'")
        attempt = await self._says(job)
        await self._until(f"{_VICTIM} is in the middle", lambda jobs: _age_s(jobs[_VICTIM]) >= _MIDDLE_S)
        return attempt

    async def _kill(self, attempt: _Attempt) -> datetime:
        """Kill the victim's worker; return the time."""
        screen = self._screen
        screen.step("Kill", f"The worker that runs {_VICTIM} gets the signal that no process can catch.")
        job, pids = self._look()[_VICTIM], {worker["id"]: worker["pid"] for worker in self._client.workers()}
        pid = pids.get(attempt.worker)
        if pid is None or (job["status"], job["worker"]) != ("running", attempt.worker):
            raise TourFailed(f"{_VICTIM} ended before its worker was killed: this machine is too busy for the tour")
        screen.command('curl -H "Authorization: Bearer $WORKRON_API_KEY" $WORKRON_URL/workers')
        screen.answer(f"{attempt.worker} has pid {pid}")
        screen.command(f"kill -9 {pid}")
        await self._pause(screen.reading_s)
        born, began_s, killed_at = birth(attempt.pid), time.monotonic(), datetime.now(UTC)
        os.kill(pid, signal.SIGKILL)
        while birth(attempt.pid) == born:
            if time.monotonic() > began_s + LEASE_S:
                raise TourFailed(f"the command of {_VICTIM} outlived its worker by {_since(began_s)}")
            await self._pause(_GLANCE_S)
        screen.blow(f"Dead. Its guardian has killed the command, too, {_since(began_s)} later.")
        return killed_at

    async def _recover(self, first: _Attempt, killed_at: datetime) -> None:
        screen = self._screen
        screen.step("Recover", "The lease is no longer renewed; when it expires, the reaper recovers the job.")
        jobs = await self._until(f"{_VICTIM} runs again", lambda jobs: _runs_again(jobs[_VICTIM], first.number))
        job = jobs[_VICTIM]
        noticed_s = (moments.parse(job["started_at"] or "") - killed_at).total_seconds()
        screen.done(f"Lost worker noticed after {noticed_s:.1f} s; {_heir(first.worker, job['worker'])} has the job.")
        second = await self._says(job)
        if second.fence <= first.fence:
            raise TourFailed(f"the fence did not grow: {first.fence}, then {second.fence}")
        screen.say("The fence has grown: a late report of the first attempt would be rejected.")

    async def _finish(self) -> None:
        screen = self._screen
        jobs = await self._until("all jobs are done", lambda jobs: {job["status"] for job in jobs.values()} == {"done"})
        screen.step("Sum up", self._sum_up(jobs))
        screen.table(jobs)
        screen.command(f"workron logs {jobs['total']['id']}")
        screen.answer(self._output(jobs["total"]).strip())

    def _sum_up(self, jobs: Jobs) -> str:
        attempts = sum(job["attempts"] for job in jobs.values())
        lost = sum(how == "worker lost" for how in self._screen.history.values())
        failed = attempts - len(jobs) - lost
        done = f"{counted(len(jobs), 'job')}, each done exactly once"
        return f"{done}; of {counted(attempts, 'attempt')} {failed} failed, {lost} lost its worker."

    async def _says(self, job: JobDoc) -> _Attempt:
        """Return what the command of this attempt printed, and show it."""
        pattern = re.compile(rf"attempt ({job['attempts']}), fence (\d+), pid (\d+)\n")
        await self._until(f"{_VICTIM} says something", lambda _: pattern.match(self._output(job)) is not None)
        found = pattern.match(self._output(job))
        if not found:
            raise TourFailed(f"the output of {_VICTIM} is gone")
        self._screen.command(f"workron logs {job['id']}")  # only now: typed by the user, it shows the same
        self._screen.answer(found[0].strip())
        number, fence, pid = map(int, found.groups())
        return _Attempt(number, fence, pid, job["worker"] or "")

    def _output(self, job: JobDoc) -> str:
        return b"".join(self._client.output(job["id"])).decode(errors="replace")

    async def _until(self, what: str, condition: Callable[[Jobs], bool]) -> Jobs:
        """Show the jobs until the condition is true."""
        give_up_at_s = time.monotonic() + _PATIENCE_S
        while not condition(jobs := self._look()):
            if time.monotonic() > give_up_at_s:
                raise TourFailed(f"waited {_PATIENCE_S:g} s in vain until {what}")
            await self._pause(_LOOK_S)
        return jobs

    def _look(self) -> Jobs:
        self._stack.check()
        jobs = {job["name"] or "": job for job in self._client.workflow(self._workflow_id)["jobs"]}
        self._screen.show(jobs)
        for name, job in jobs.items():
            if job["status"] in TERMINAL - {"done"}:
                how = f"{job['status']} {ending(job)}".strip()
                raise TourFailed(f"the job {name} ended otherwise than planned ({how}), so the tour ends here")
        return jobs


def _runs_again(job: JobDoc, attempt: int) -> bool:
    return job["status"] == "running" and job["attempts"] > attempt


def _heir(lost: str, worker: str | None) -> str:
    """Return how this worker relates to the lost one, which `up` replaces."""
    same = str(worker).rpartition("-")[0] == lost.rpartition("-")[0]
    return f"{'its replacement' if same else 'the other one'}, {worker},"


def _age_s(job: JobDoc) -> float:
    """Return how long ago the latest attempt started."""
    return (datetime.now(UTC) - moments.parse(job["started_at"])).total_seconds() if job["started_at"] else 0.0


def _since(began_s: float) -> str:
    passed_s = time.monotonic() - began_s
    return f"{passed_s:.1f} s" if passed_s >= 1 else f"{passed_s * 1000:.0f} ms"
