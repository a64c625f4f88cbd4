"""Runs the commands of claims, each guarded by the guardian from before its start until after its end."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self

from workers.attempt import Attempt, Surroundings
from workers.command import allowed_environment
from workers.command_files import Notes
from workers.exits import Exits
from workers.guardian import boottime_s
from workers.guardian_link import GuardianLink
from workers.parents import FetchParents, no_parents
from workers.poison import PoisonJobs
from workers.process import Launcher
from workers.shortage import Exhaustion
from workron.models import Claim, Outcome

_OOM_SCORE_STEP: Final = 500
_OOM_SCORE_MAX: Final = 1000


class Executor:
    """Runs commands, each guarded from before its start until after its end.

    An async context manager: its exit kills all running attempts as lost.
    """

    def __init__(
        self,
        *,
        kill_grace_s: float,
        halted: Callable[[], bool] = lambda: False,
        parents: FetchParents = no_parents,
        environ: Mapping[bytes, bytes] = os.environb,
    ) -> None:
        self._kill_grace_s = kill_grace_s
        self.halted: Final = halted
        """Whether to start no more commands; attempts that have not begun are stopped."""
        self._parents = parents
        self.notes: Final = Notes()
        self.exhaustion: Final = Exhaustion()
        self.unanswered_since_s: float | None = None
        """When the first of the heartbeats was sent that have no answer yet, as by `boottime_s`."""
        self._environment = allowed_environment(environ)
        self.guardian = GuardianLink()
        self._launcher: Launcher
        self._shared: Surroundings
        self._exits: Exits
        self._attempts: dict[int, Attempt] = {}
        self.suspects: Final = PoisonJobs(self._attempts)

    async def __aenter__(self) -> Self:
        self._exits = Exits()
        self._launcher = Launcher(self._exits, self.halted)
        self._shared = self._surroundings()
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

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            launcher=self._launcher,
            guardian=self.guardian,
            notes=self.notes,
            exhaustion=self.exhaustion,
            suspects=self.suspects,
            parents=self._parents,
            environment=self._environment,
            kill_grace_s=self._kill_grace_s,
            oom_score=b"%d" % min(_own_oom_score() + _OOM_SCORE_STEP, _OOM_SCORE_MAX),
            unanswered_since_s=lambda: self.unanswered_since_s,
        )

    def _close(self) -> None:
        self._launcher.close()
        self._exits.close()
        self.notes.close()

    @property
    def attempts(self) -> Mapping[int, Attempt]:
        """The unfinished attempts, by fence."""
        return MappingProxyType(self._attempts)

    def start(self, claim: Claim, deadline: float) -> Attempt:
        """Start the command of a claim; `deadline` is the end of its lease on the clock `boottime_s`.

        Without a guardian the attempt waits.
        """
        attempt = self._attempts[claim.fence] = Attempt(self._shared, claim, deadline)
        if attempt.is_suspect:
            self.suspects.add(attempt)
        self.guardian.begin(claim.fence, deadline)
        attempt.task.add_done_callback(lambda _: self._forget(attempt))
        return attempt

    def _forget(self, attempt: Attempt) -> None:
        del self._attempts[attempt.claim.fence]
        if attempt.is_suspect:
            self.suspects.remove(attempt)
        self.guardian.end(attempt.claim.fence, sweep=attempt.started)

    async def run(self, claim: Claim, *, deadline: float) -> Outcome:
        """Run the command of a claim to its end; all failures become an outcome, not an exception."""
        return await self.start(claim, deadline).wait()

    def renew(self, fences: Iterable[int], deadline: float) -> None:
        """Extend the leases of these attempts, counted from before the heartbeat was sent.

        An attempt past its old deadline is lost: the guardian may already have killed its command.
        """
        attempts = [attempt for fence in fences if (attempt := self._attempts.get(fence)) is not None]
        self.guardian.renew([attempt.claim.fence for attempt in attempts], deadline)
        # Only now is it sure that the guardian could know of the new deadline before the old one passed.
        now = boottime_s()
        for attempt in attempts:
            if attempt.deadline <= now:
                attempt.lose()
            attempt.deadline = deadline


def _own_oom_score() -> int:
    try:
        return int(Path("/proc/self/oom_score_adj").read_text())
    except OSError:
        return 0
