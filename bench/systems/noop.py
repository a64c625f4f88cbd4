"""Workron's executor without commands: everything else of the worker is the real one."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

from workers.attempt import Attempt, Surroundings
from workers.executor import Executor
from workron.models import Claim, Outcome


class NoopAttempt(Attempt):
    """Ends at once, as a command with exit code 0 does."""

    def __init__(self, body: Callable[[Claim], None], claim: Claim, deadline: float) -> None:
        self._body = body
        super().__init__(cast(Surroundings, SimpleNamespace(guardian=None)), claim, deadline)  # it uses nothing of it

    async def _run(self) -> Outcome:
        self._body(self.claim)
        return Outcome(None, exit_code=0)


class NoopExecutor(Executor):
    """Calls `body` instead of running the command."""

    def __init__(self, body: Callable[[Claim], None]) -> None:
        super().__init__(kill_grace_s=5.0)
        self.body = body

    async def __aenter__(self) -> "NoopExecutor":
        return self

    async def __aexit__(self, *_: object) -> None:
        """There is no guardian to end."""

    def start(self, claim: Claim, deadline: float) -> Attempt:
        attempt = self._attempts[claim.fence] = NoopAttempt(self.body, claim, deadline)
        attempt.task.add_done_callback(lambda _: self._attempts.pop(claim.fence))
        return attempt
