"""The stand-in for commands: they take their time, fail now and then, and die when they are stopped or lost.

A job's command says how: `work <ms> <failures>`, the attempts up to that number fail; `shout` does the same, with more
output than a proxy lets through. It is as if a guardian looked
after each: no command outlives the end of its lease, however frozen its worker is.
"""

import asyncio
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from tests.simulation.fault_plan import LARGEST_BODY
from tests.simulation.history import History
from workers.command_files import Notes
from workers.guardian import boottime_s
from workers.output import OutputBuffer
from workers.poison import PoisonJobs
from workers.shortage import Exhaustion
from workron.errors import StoreUnavailable
from workron.models import Claim, Outcome, OutputPatch, Reason
from workron.runtime.signals import happens

WITH_VALUES: Final = 4
"""Arrays of this size have values."""
LOUD: Final = "shout"


class Commands:
    """What a worker uses of an `Executor`."""

    def __init__(self, history: History) -> None:
        self.notes = Notes()
        self.exhaustion = Exhaustion()
        self.unanswered_since_s: float | None = None
        self.history = history
        self._attempts: dict[int, Run] = {}
        self.suspects = PoisonJobs({})

    @property
    def attempts(self) -> Mapping[int, "Run"]:
        return MappingProxyType(self._attempts)

    def halted(self) -> bool:
        return False

    def start(self, claim: Claim, deadline: float) -> "Run":
        run = self._attempts[claim.fence] = Run(self, claim, deadline)
        run.task.add_done_callback(lambda _: self._attempts.pop(claim.fence))
        return run

    def renew(self, fences: Iterable[int], deadline: float) -> None:
        for fence in fences:
            run = self._attempts.get(fence)
            if run is not None and run.deadline <= boottime_s():
                run.lose()
            elif run is not None:
                run.deadline = deadline


class Run:
    """One attempt, as a worker knows it."""

    def __init__(self, commands: Commands, claim: Claim, deadline: float) -> None:
        self.claim = claim
        self.deadline = deadline
        self.output = OutputBuffer()
        self.started = True
        self.given_back = False
        self._commands = commands
        self.is_suspect = False
        self._is_refused = False
        self._ended_by: Reason | None = None
        self._told = asyncio.Event()
        self._history = commands.history
        self._suspects = commands.suspects
        self.task = asyncio.get_running_loop().create_task(self._run())

    @property
    def may_run(self) -> bool:
        """Whether the command may still be there."""
        return not self.task.done() and boottime_s() < self.deadline

    def cancel(self) -> None:
        self._end(Reason.CANCELLED)

    def refuse(self, why: str) -> None:
        self._is_refused = True
        if not self._is_loud:
            self._history.problems.append(f"{self.claim.id} was refused for what another one reported: {why}")
        self._end(Reason.EXIT_CODE)

    @property
    def _is_loud(self) -> bool:
        return (self.claim.command or "").startswith(LOUD)

    def take_output(self) -> OutputPatch | None:
        return None if self._is_refused else self.output.take()

    def stop(self, *, now: bool = False) -> None:
        if not self._told.is_set():
            self.given_back = True
            self._end(Reason.CANCELLED)

    def lose(self) -> None:
        self._lost()
        self._end(Reason.WORKER_LOST)

    def _lost(self) -> None:
        since_s = self._commands.unanswered_since_s
        self.given_back = since_s is not None and since_s < self.deadline

    def _end(self, why: Reason) -> None:
        self._ended_by = why
        self._told.set()

    async def _begin(self) -> None:
        """Say that it begins, if it is a suspect; whether it may is not known before that is answered."""
        while self.claim.is_suspect and self._ended_by is None:
            try:
                may = await self._suspects.begin(self.claim.id, self.claim.fence)
            except StoreUnavailable:
                await happens(self._told, within_s=0.2)
            else:
                if not may or boottime_s() >= self.deadline:
                    self.lose()
                return

    async def _run(self) -> Outcome:
        await self._begin()
        if self._ended_by is not None:
            return Outcome(self._ended_by)
        self._history.begins(self)
        array = self.claim.more.get("array")
        if array and array["size"] == WITH_VALUES and array.get("value") != f"value {array['index']}":
            self._history.problems.append(f"{self.claim.id} was started without its value: {array}")
        _, length_ms, failures = (self.claim.command or "work 100 0").split()
        length_s = int(length_ms) / 1000
        timeout_s = self.claim.timeout_ms / 1000 if self.claim.timeout_ms else length_s + 1
        self.output.write(f"attempt {self.claim.attempt}\n".encode())
        if self._is_loud:
            self._history.loud.add(self.claim.id)
            self.output.write(b"loud" * LARGEST_BODY)
        await happens(self._told, within_s=min(length_s, timeout_s))
        if self._ended_by is not None:
            return Outcome(self._ended_by, signal=15)
        if boottime_s() >= self.deadline and (timeout_s < length_s or self.claim.attempt <= int(failures)):
            self._lost()
            return Outcome(Reason.WORKER_LOST)
        if timeout_s < length_s:
            return Outcome(Reason.TIMEOUT, signal=15)
        if self.claim.attempt <= int(failures):
            return Outcome(Reason.EXIT_CODE, exit_code=1, error="exit code 1")
        return Outcome(None, exit_code=0)  # however late: the scheduler knows whose result counts
