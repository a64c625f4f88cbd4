"""An attempt: starts the command of a claim, reads its output, stops it on request, returns the outcome.

A command can end before its time by its own timeout, by a call (`cancel`, `stop`, `lose`, `refuse`), or through the
guardian when its lease ends. All but a lost lease are TERM to its whole process group, and KILL after the grace time.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from workers.command import is_of_the_host, program_for, why_not_started
from workers.command_files import Notes, Said, with_notes
from workers.guardian import boottime_s
from workers.guardian_link import GuardianLink
from workers.outcome import Ending, not_started, outcome_of
from workers.output import OutputBuffer
from workers.parents import FetchParents
from workers.poison import PoisonJobs
from workers.process import Halted, Launcher, Process
from workers.shortage import AGAIN_S, PATIENCE_OF_LEASE, Exhaustion, Shortage
from workron.durations import to_seconds
from workron.models import Claim, Outcome, OutputPatch

Result = TypeVar("Result")
_LOOK_ROUND_S: Final = 0.02


class StartError(Exception):
    """The system failed to start the command; `str()` gives the reason."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Objects shared by the attempts of one worker."""

    launcher: Launcher
    guardian: GuardianLink
    notes: Notes
    exhaustion: Exhaustion
    suspects: PoisonJobs
    parents: FetchParents
    environment: Mapping[bytes, bytes]
    kill_grace_s: float
    oom_score: bytes
    unanswered_since_s: Callable[[], float | None]
    """Send time of the first unanswered heartbeat, on the clock `boottime_s`."""


class Attempt:
    """One run of a command, from its start to its outcome."""

    def __init__(self, shared: Surroundings, claim: Claim, deadline: float) -> None:
        self.claim = claim
        self.deadline = deadline
        self.output = OutputBuffer()
        self.is_suspect: Final = claim.is_suspect
        self._shared = shared
        self._guardian = shared.guardian
        self._process: Process | None = None
        self._ending: Ending | None = None
        self._why = ""
        self._blameless = False
        self._timers: list[asyncio.TimerHandle] = []
        self._waiter: asyncio.Future[Any] | None = None
        self._loop = asyncio.get_running_loop()
        self.alone_until_s: Final = self._loop.time() + 2 * self.patience_s if self.is_suspect else 0.0
        self.task = self._loop.create_task(self._run())

    @property
    def patience_s(self) -> float:
        """How long it may be delayed: the timeout of a job counts from its claim."""
        return to_seconds(self.claim.lease_ms) / PATIENCE_OF_LEASE

    @property
    def wants_to_be_alone(self) -> bool:
        """Whether to start nothing else: a suspect was started recently. Most poison jobs kill their worker soon."""
        return self._loop.time() < self.alone_until_s

    @property
    def given_back(self) -> bool:
        """Whether to release its job: it was stopped for a reason unrelated to its command."""
        return self._ending is Ending.STOP or (self._ending is Ending.LOSE and self._blameless)

    @property
    def ending(self) -> bool:
        """Whether it was stopped, or is being stopped, early."""
        return self._ending is not None

    @property
    def started(self) -> bool:
        """Whether its command was started."""
        return self._process is not None

    def take_output(self) -> OutputPatch | None:
        """Return the output to send next; nothing after a rejection, as it would be rejected again."""
        return None if self._ending is Ending.REFUSE else self.output.take()

    async def wait(self) -> Outcome:
        """Return the outcome once there is one. Cancelling the wait does not affect the command."""
        return await asyncio.shield(self.task)

    def cancel(self) -> None:
        """Cancel the command for its user; if it is already being stopped, its outcome counts again."""
        if self._ending is Ending.STOP and not self.task.done():
            self._ending = Ending.CANCEL
        self._end(Ending.CANCEL)

    def stop(self, *, now: bool = False) -> None:
        """Stop the command because the worker stops; `now`: without a grace time."""
        self._end(Ending.STOP)
        if now:
            self._signal(signal.SIGKILL)

    def refuse(self, why: str) -> None:
        """Stop the command as failed because the API rejects its reports."""
        if not self.ending:
            self._why = why
        self._end(Ending.REFUSE)

    def lose(self) -> None:
        """Kill the command at once because the job may already be running elsewhere."""
        if not self.task.done():
            self._lost()
            self._signal(signal.SIGKILL)
            self._stop_waiting()

    def _lost(self) -> None:
        """Record that it is lost: not by its own fault if a heartbeat sent in time had no response."""
        since_s = self._shared.unanswered_since_s()
        self._ending = Ending.LOSE
        self._blameless = not self.started or (since_s is not None and since_s < self.deadline)

    async def _run(self) -> Outcome:
        try:
            await self._be_guarded()
            if self.is_suspect:
                await self._shared.suspects.turn(self)
            else:
                await self.wait_while(self._shared.suspects.keep_clear)
            status = None
            if (process := await self._start_patiently()) is not None:
                await process.exited
                status = self._finish(process)
            outcome = outcome_of(self.claim, self._ending, status, self.output, self._why)
            return with_notes(outcome, await self._take_notes())
        except Halted:
            self._drop_notes()
            self._end(Ending.STOP)
            return outcome_of(self.claim, self._ending, None, self.output)
        except StartError as error:
            self._drop_notes()
            return not_started(str(error))
        finally:
            for timer in self._timers:
                timer.cancel()

    async def _take_notes(self) -> Said:
        """Take the command's files; a host that cannot read them now may do so soon."""
        until_s = self._loop.time() + self.patience_s
        while True:
            try:
                return self._shared.notes.take(self.claim.fence, parents=self.claim.has_parents)
            except Shortage as shortage:
                if self._loop.time() >= until_s:
                    return Said(complaint=f"its result was not kept: {shortage}")
                await self._wait_for_room(shortage)

    def _drop_notes(self) -> None:
        with suppress(Shortage):
            self._shared.notes.take(self.claim.fence, parents=self.claim.has_parents)

    async def wait_while(self, holds: Callable[[], bool]) -> None:
        """Wait while the condition is true, at most as long as the attempt may be delayed."""
        until_s = self._loop.time() + self.patience_s
        while self._ending is None and holds() and self._loop.time() < until_s:
            await self.pause(_LOOK_ROUND_S)

    async def pause(self, seconds: float) -> None:
        await self.unless_ended(asyncio.sleep(seconds))

    async def unless_ended(self, work: Awaitable[Result]) -> asyncio.Future[Result]:
        """Wait until the task is done, or cancelled because the attempt is stopped; return it."""
        self._waiter = waiter = asyncio.ensure_future(work)
        await asyncio.wait({waiter})
        return waiter

    def lose_if_late(self) -> None:
        if boottime_s() >= self.deadline:
            self.lose()

    async def _start_patiently(self) -> Process | None:
        """Start the command when resources allow; return None if it was stopped before or is to be released."""
        until_s = 0.0
        while self._ending is None:
            try:
                self._shared.notes.keep()
                if self.claim.has_parents:
                    await self._learn_of_parents()
                if self._ending is None:
                    return self._start()
            except Shortage as shortage:
                until_s = until_s or self._loop.time() + self.patience_s
                if self._loop.time() >= until_s:
                    self._shared.exhaustion.gave_up()
                    self._end(Ending.STOP)
                else:
                    await self._wait_for_room(shortage)
        return None

    async def _wait_for_room(self, shortage: Shortage) -> None:
        with self._shared.exhaustion.waiting(shortage):
            await self.pause(AGAIN_S)

    async def _be_guarded(self) -> None:
        """Wait until the guardian knows this attempt, or it must not start any more."""
        while self._ending is None and not self._guardian.flush():
            await self.unless_ended(self._guardian.up.wait())
        self.lose_if_late()

    async def _learn_of_parents(self) -> None:
        """Write the results of the job's dependencies for the command."""
        if self._ending is not None:
            return
        waiter = await self.unless_ended(self._write_parents())
        if not waiter.cancelled() and (error := waiter.exception()) is not None:
            if isinstance(error, (OSError, Shortage)):  # of our own file: no fault of the job
                raise Shortage(str(error)) from error
            raise StartError(f"the results of the jobs that it depends on can't be had: {error}") from error
        self.lose_if_late()

    async def _write_parents(self) -> None:
        data = await self._shared.parents(self.claim.id)
        self._shared.notes.write_parents(self.claim.fence, data)

    def _start(self) -> Process:
        shared = self._shared
        try:
            files = shared.notes.variables(self.claim.fence, parents=self.claim.has_parents)
            program = program_for(self.claim, shared.environment, self._guardian.token, files)
            self._process = process = shared.launcher.start(program, self.output)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and is_of_the_host(error):
                raise Shortage(why_not_started(self.claim, error)) from error
            raise StartError(why_not_started(self.claim, error)) from error
        except MemoryError as error:
            raise Shortage("the worker has no memory left") from error
        if shared.exhaustion.lasts:
            shared.exhaustion.started()
        self._guardian.group(self.claim.fence, process.pid)
        process.set_oom_score(shared.oom_score)
        if self.claim.timeout_ms is not None:
            self._timers.append(self._loop.call_later(to_seconds(self.claim.timeout_ms), self._end, Ending.TIMEOUT))
        self.lose_if_late()  # stopped since it was guarded: the guardian looked in vain
        return process

    def _finish(self, process: Process) -> int | None:
        """Clean up all processes and return the exit status.

        A failure noticed after the lease expired is attributed to the guardian. Success stays success however
        late: a kill can't cause it, and the scheduler knows which result counts.
        """
        late = boottime_s() >= self.deadline
        process.clean_up()
        # Before the reap: after it the group's number may be given to somebody else.
        self._guardian.end(self.claim.fence, sweep=late or self._ending is not None)
        status = process.reap()
        if status == 0 and self._ending is Ending.LOSE:
            self._ending = None
        elif late and status != 0:
            self._lost()
        return status

    def _end(self, ending: Ending) -> None:
        """Terminate the command, and kill it after the grace time; the first reason counts."""
        if self._ending is not None or self.task.done() or (self._process is not None and self._process.has_exited()):
            return
        self._ending = ending
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # a stopped process would not notice
        self._timers.append(self._loop.call_later(self._shared.kill_grace_s, self._signal, signal.SIGKILL))
        self._stop_waiting()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.signal_group(number)

    def _stop_waiting(self) -> None:
        if self._waiter is not None:
            self._waiter.cancel()
