"""Where a worker gets jobs from and reports to: one interface, so that the worker is the same over Redis and HTTP."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from workron.models import Claimed, ClaimRequest, OutputPatch, Parent, Result, WorkerInfo
from workron.models.exchange import Exchanged, Kept
from workron.models.workers import Beats


class JobSource(Protocol):
    """What a worker needs. Every call may raise StoreUnavailable and may then be repeated as it is.

    ApiRefuses among them says that it is no outage: the call, or a report in it, is not accepted.
    """

    @property
    def lease_ms(self) -> int: ...

    async def exchange(self, worker: str, results: Sequence[Result], request: ClaimRequest | None) -> Exchanged:
        """Report results and claim jobs in one call."""

    async def introduce(self, info: WorkerInfo) -> None:
        """Have a new worker checked: StartupError if its claims or heartbeats would be refused."""

    async def heartbeat(self, info: WorkerInfo, held: Sequence[tuple[str, int]]) -> Beats:
        """Prove life and renew the leases of attempts (job, fence)."""

    async def begin(self, job_id: str, fence: int) -> bool:
        """Say that the command of a suspect starts now; whether it may: the attempt has not been lost."""

    async def leave(self, worker: str) -> None:
        """Say that the worker has stopped: it is not lost."""

    async def unfinished(self, queues: Sequence[str]) -> int:
        """Return how many jobs of these queues have not ended."""

    async def release(self, held: Sequence[tuple[str, int]]) -> None:
        """Give attempts (job, fence) back unfinished."""

    async def write_output(self, patches: Sequence[tuple[str, int, OutputPatch]]) -> list[Kept]:
        """Store what running attempts (job, fence) have written; answers in this order."""

    async def parents(self, job_id: str) -> list[Parent]:
        """Return how the jobs ended that this one depends on, with their results."""

    async def wait(self, request: ClaimRequest) -> Claimed:
        """Claim for a parked request as soon as there may be something, or after a part of the lease.

        Given up, it is to be ended by an exchange with a limit of 0.
        """

    def cancels(self) -> AsyncIterator[tuple[str, str, int]]:
        """Yield (worker, job, fence) of running attempts that are to be cancelled.

        A worker with an empty job is to send its next heartbeat now.
        """

    async def aclose(self) -> None: ...
