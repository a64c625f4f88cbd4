"""Run the command of one claim: start it, read what it writes, stop it when told to, say how it ended.

A command can end before its time by its own timeout, by a call (`cancel`, `stop`, `lose`), or through the guardian
when its lease ends. Timeout, cancel and stop are TERM to its whole process group, and KILL after the grace time.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self, TypeVar

from workers.command import allowed_environment, program_for, why_not_started
from workers.exits import Exits
from workers.guard import Guardian
from workers.guardian import boottime_s
from workers.notes import Notes, with_notes
from workers.outcome import Ending, not_started, outcome_of
from workers.output import OutputBuffer
from workers.parents import FetchParents, no_parents
from workers.process import Halted, Launcher, Process
from workers.scarcity import AGAIN_S, PATIENCE_OF_LEASE, Scarcity, Shortage, is_shortage
from workers.suspects import Suspects, is_suspect
from workron.models import Claim, Outcome

Result = TypeVar("Result")
_OOM_SCORE_STEP: Final = 500
_OOM_SCORE_MAX: Final = 1000
_LOOK_ROUND_S: Final = 0.02


class Executor:
    """Runs commands, each guarded from before its start until after its end.

    An async context: leaving it kills what still runs, as lost.
    """

    def __init__(
        self,
        *,
        kill_grace_s: float,
        halted: Callable[[], bool] = lambda: False,
        parents: FetchParents = no_parents,
        environ: Mapping[bytes, bytes] = os.environb,
    ) -> None:
        self.kill_grace_s = kill_grace_s
        self.halted: Final = halted
        """Whether no command is to be started any more; what has not begun then is stopped before it does."""
        self.parents: Final = parents
        """Returns the JSON that tells the command of a job (its id) how those ended that it depends on."""
        self.notes: Final = Notes()
        self.scarcity: Final = Scarcity()
        self.environment = allowed_environment(environ)
        self.guardian = Guardian()
        self.oom_score = b"%d" % min(_own_oom_score() + _OOM_SCORE_STEP, _OOM_SCORE_MAX)
        self.launcher: Launcher
        self._exits: Exits
        self._attempts: dict[int, Attempt] = {}
        self.suspects: Final = Suspects(self._attempts)

    async def __aenter__(self) -> Self:
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            # Inherited from a parent that ignores its children: the exit codes of ours would be thrown away.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._exits = Exits()
        self.launcher = Launcher(self._exits, self.halted)
        self.notes.open()
        try:
            await self.guardian.start(self._exits, self.notes.folder)
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        running = list(self._attempts.values())
        for attempt in running:
            attempt.lose()
        if running:
            await asyncio.wait({attempt.task for attempt in running})
        await self.guardian.close()
        self._close()

    def _close(self) -> None:
        self.launcher.close()
        self._exits.close()
        self.notes.close()

    @property
    def attempts(self) -> Mapping[int, "Attempt"]:
        """The attempts that have not ended, by fence."""
        return MappingProxyType(self._attempts)

    def start(self, claim: Claim, deadline: float) -> "Attempt":
        """Start the command of a claim; `deadline` is when its lease ends, in seconds as by `boottime_s`.

        While there is no guardian the command is not started, the attempt waits.
        """
        attempt = self._attempts[claim.fence] = Attempt(self, claim, deadline)
        if attempt.is_suspect:
            self.suspects.add(attempt)
        self.guardian.begin(claim.fence, deadline)
        attempt.task.add_done_callback(lambda _: self._forget(attempt))
        return attempt

    def _forget(self, attempt: "Attempt") -> None:
        del self._attempts[attempt.claim.fence]
        if attempt.is_suspect:
            self.suspects.remove(attempt)
        self.guardian.end(attempt.claim.fence, sweep=attempt.started)

    async def run(self, claim: Claim, *, deadline: float) -> Outcome:
        """Run the command of a claim to its end; whatever happens to it is an outcome, not an exception."""
        return await self.start(claim, deadline).wait()

    def renew(self, fences: Iterable[int], deadline: float) -> None:
        """Set a new end of the lease for these attempts, counted from before the heartbeat was sent.

        An attempt whose old deadline has passed meanwhile is lost: the guardian may have killed its command already.
        """
        attempts = [attempt for fence in fences if (attempt := self._attempts.get(fence)) is not None]
        self.guardian.renew([attempt.claim.fence for attempt in attempts], deadline)
        # Only now is it sure that the guardian could know of the new deadline before the old one passed.
        now = boottime_s()
        for attempt in attempts:
            if attempt.deadline <= now:
                attempt.lose()
            attempt.deadline = deadline


class StartError(Exception):
    """The system refused to start the command; `str()` says why."""


class Attempt:
    """One run of a command, from its start to its outcome."""

    def __init__(self, executor: Executor, claim: Claim, deadline: float) -> None:
        self.claim = claim
        self.deadline = deadline
        self.output = OutputBuffer()
        self._has_parents = bool(claim.more and claim.more.get("parents"))
        self.is_suspect: Final = is_suspect(claim)
        self._executor = executor
        self._guardian = executor.guardian
        self._process: Process | None = None
        self._ending: Ending | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._waiter: asyncio.Future[Any] | None = None
        self._loop = asyncio.get_running_loop()
        self.alone_until_s: Final = self._loop.time() + 2 * self.patience_s if self.is_suspect else 0.0
        self.task = self._loop.create_task(self._run())

    @property
    def patience_s(self) -> float:
        """How long it may be put off: the time for which a job may run counts from its claim."""
        return self.claim.lease_ms / 1000 / PATIENCE_OF_LEASE

    @property
    def wants_to_be_alone(self) -> bool:
        """Whether nothing else is to be started: a suspect has not run for long yet. Most that kill do so soon."""
        return self._loop.time() < self.alone_until_s

    @property
    def stopped(self) -> bool:
        """Whether `stop` ended it: then it is to be released, its outcome says nothing about the command."""
        return self._ending is Ending.STOP

    @property
    def ending(self) -> bool:
        """Whether it was ended, or is being ended, before its time."""
        return self._ending is not None

    @property
    def started(self) -> bool:
        """Whether its command was started."""
        return self._process is not None

    async def wait(self) -> Outcome:
        """Return the outcome once there is one. Being cancelled while waiting does not touch the command."""
        return await asyncio.shield(self.task)

    def cancel(self) -> None:
        """End the command on behalf of its user; if it is being stopped already, its outcome counts again."""
        if self._ending is Ending.STOP and not self.task.done():
            self._ending = Ending.CANCEL
        self._end(Ending.CANCEL)

    def stop(self, *, now: bool = False) -> None:
        """End the command because the worker has to go; `now`: without a grace time."""
        self._end(Ending.STOP)
        if now:
            self._signal(signal.SIGKILL)

    def lose(self) -> None:
        """Kill the command at once because the job may be running elsewhere by now."""
        if not self.task.done():
            self._ending = Ending.LOSE
            self._signal(signal.SIGKILL)
            self._stop_waiting()

    async def _run(self) -> Outcome:
        try:
            await self._be_guarded()
            if self.is_suspect:
                await self._executor.suspects.turn(self)
            else:
                await self.wait_while(self._executor.suspects.keep_clear)
            status = None
            if (process := await self._start_patiently()) is not None:
                await process.exited
                status = self._finish(process)
            outcome = outcome_of(self.claim, self._ending, status, self.output)
            return with_notes(outcome, self._executor.notes.take(self.claim.fence, parents=self._has_parents))
        except Halted:
            self._executor.notes.take(self.claim.fence, parents=self._has_parents)
            self._end(Ending.STOP)
            return outcome_of(self.claim, self._ending, None, self.output)
        except StartError as error:
            self._executor.notes.take(self.claim.fence, parents=self._has_parents)
            return not_started(str(error))
        finally:
            for timer in self._timers:
                timer.cancel()

    async def wait_while(self, holds: Callable[[], bool]) -> None:
        """Wait while that holds, but for no longer than it may be put off."""
        until_s = self._loop.time() + self.patience_s
        while self._ending is None and holds() and self._loop.time() < until_s:
            await self.pause(_LOOK_ROUND_S)

    async def pause(self, seconds: float) -> None:
        await self.unless_ended(asyncio.sleep(seconds))

    async def unless_ended(self, work: Awaitable[Result]) -> asyncio.Future[Result]:
        """Wait until it is done, or cancelled because the attempt is ended; returns it."""
        self._waiter = waiter = asyncio.ensure_future(work)
        await asyncio.wait({waiter})
        return waiter

    def lose_if_late(self) -> None:
        if boottime_s() >= self.deadline:
            self.lose()

    async def _start_patiently(self) -> Process | None:
        """Start the command, when the system has room for it; None if it was ended before, or is to be given back."""
        until_s = 0.0
        while self._ending is None:
            try:
                if self._has_parents:
                    await self._learn_of_parents()
                if self._ending is None:
                    return self._start()
            except Shortage as shortage:
                until_s = until_s or self._loop.time() + self.patience_s
                if self._loop.time() >= until_s:
                    self._executor.scarcity.gave_up()
                    self._end(Ending.STOP)
                else:
                    await self._wait_for_room(shortage)
        return None

    async def _wait_for_room(self, shortage: Shortage) -> None:
        with self._executor.scarcity.waiting(shortage):
            await self.pause(AGAIN_S)

    async def _be_guarded(self) -> None:
        """Wait until the guardian knows of this attempt, or it is not to start any more."""
        while self._ending is None and not self._guardian.flush():
            await self.unless_ended(self._guardian.up.wait())
        self.lose_if_late()

    async def _learn_of_parents(self) -> None:
        """Write down for the command how those jobs ended on which its own depends."""
        if self._ending is not None:
            return
        waiter = await self.unless_ended(self._write_parents())
        if not waiter.cancelled() and (error := waiter.exception()) is not None:
            if isinstance(error, OSError) and is_shortage(error):
                raise Shortage(str(error)) from error
            raise StartError(f"the results of the jobs that it depends on can't be had: {error}") from error
        self.lose_if_late()

    async def _write_parents(self) -> None:
        data = await self._executor.parents(self.claim.id)
        self._executor.notes.write_parents(self.claim.fence, data)

    def _start(self) -> Process:
        executor = self._executor
        try:
            files = executor.notes.variables(self.claim.fence, parents=self._has_parents)
            program = program_for(self.claim, executor.environment, self._guardian.token, files)
            self._process = process = executor.launcher.start(program, self.output)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and is_shortage(error):
                raise Shortage(why_not_started(self.claim, error)) from error
            raise StartError(why_not_started(self.claim, error)) from error
        if executor.scarcity.lasts:
            executor.scarcity.started()
        self._guardian.group(self.claim.fence, process.pid)
        process.set_oom_score(executor.oom_score)
        if self.claim.timeout_ms is not None:
            self._timers.append(self._loop.call_later(self.claim.timeout_ms / 1000, self._end, Ending.TIMEOUT))
        self.lose_if_late()  # stopped since it was guarded: the guardian looked in vain
        return process

    def _finish(self, process: Process) -> int | None:
        """Leave nothing behind and return the exit status.

        A failure noticed after the end of the lease is taken for the guardian's doing. Success stays success however
        late: nobody can be killed into it, and the scheduler knows whose result counts.
        """
        late = boottime_s() >= self.deadline
        process.clean_up()
        # Before the reap: after it the group's number may be given to somebody else.
        self._guardian.end(self.claim.fence, sweep=late or self._ending is not None)
        status = process.reap()
        if late and status != 0:
            self._ending = Ending.LOSE
        return status

    def _end(self, ending: Ending) -> None:
        """Ask the command to go, and make it go after the grace time; the first reason stands."""
        if self._ending is not None or self.task.done() or (self._process is not None and self._process.has_exited()):
            return
        self._ending = ending
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # a stopped process would not notice
        self._timers.append(self._loop.call_later(self._executor.kill_grace_s, self._signal, signal.SIGKILL))
        self._stop_waiting()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.signal_group(number)

    def _stop_waiting(self) -> None:
        if self._waiter is not None:
            self._waiter.cancel()


def _own_oom_score() -> int:
    try:
        return int(Path("/proc/self/oom_score_adj").read_text())
    except OSError:
        return 0
