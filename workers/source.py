"""The source of a worker's jobs and the target of its reports: one interface for Redis and HTTP."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from workron.models import Claimed, ClaimRequest, OutputPatch, Parent, Result, WorkerInfo
from workron.models.exchange import Exchanged, Kept
from workron.models.workers import Beats


class JobSource(Protocol):
    """The calls of a worker. Each may raise StoreUnavailable and can then be repeated unchanged.

    Its subclass ApiRefuses is not an outage: the call, or a report in it, is rejected.
    """

    @property
    def lease_ms(self) -> int: ...

    async def exchange(self, worker: str, results: Sequence[Result], request: ClaimRequest | None) -> Exchanged:
        """Report results and claim jobs in one call."""

    async def introduce(self, info: WorkerInfo) -> None:
        """Check a new worker; raise StartupError if its claims or heartbeats would be rejected."""

    async def heartbeat(self, info: WorkerInfo, held: Sequence[tuple[str, int]]) -> Beats:
        """Send a heartbeat and renew the leases of attempts (job, fence)."""

    async def begin(self, job_id: str, fence: int) -> bool:
        """Report the start of a suspect's command; return whether it may start: the attempt is not lost."""

    async def leave(self, worker: str) -> None:
        """Deregister a stopped worker, so that it does not count as lost."""

    async def unfinished(self, queues: Sequence[str]) -> int:
        """Return the number of unfinished jobs of these queues."""

    async def release(self, held: Sequence[tuple[str, int]]) -> None:
        """Release unfinished attempts (job, fence)."""

    async def write_output(self, patches: Sequence[tuple[str, int, OutputPatch]]) -> list[Kept]:
        """Store output of running attempts (job, fence); return the results in this order."""

    async def parents(self, job_id: str) -> list[Parent]:
        """Return the final status and results of the job's dependencies."""

    async def wait(self, request: ClaimRequest) -> Claimed:
        """Claim for a parked request as soon as there may be a job, or after a part of the lease.

        After a cancel, end the request by an exchange with limit 0.
        """

    def cancels(self) -> AsyncIterator[tuple[str, str, int]]:
        """Yield (worker, job, fence) of running attempts to cancel.

        With an empty job, the worker should send its next heartbeat now.
        """

    async def aclose(self) -> None: ...
