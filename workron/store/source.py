"""A worker's source of jobs over Redis."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Final

from workron.errors import StoreUnavailable
from workron.models import Claimed, ClaimRequest, OutputPatch, Parent, Result, WorkerInfo
from workron.models.exchange import Exchanged, Kept
from workron.models.workers import Beats
from workron.redis.connection import Connection
from workron.store import Store

_LONGEST_WAIT_S: Final = 10.0
"""Duration of a wait: each costs a claim, so short ones are expensive; a half-open connection is noticed after one."""


class RedisSource:
    """A source over Redis. Waits on a separate connection; propagates ends to dependents in the background."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting = AsyncExitStack()
        self._inbox: Connection | None = None
        self._propagation: asyncio.Task[None] | None = None

    @property
    def lease_ms(self) -> int:
        return self._store.policy.lease_ms

    async def exchange(self, worker: str, results: Sequence[Result], request: ClaimRequest | None) -> Exchanged:
        exchanged = await self._store.attempts.finish(results, request, worker=worker)
        if exchanged.propagating and (self._propagation is None or self._propagation.done()):
            self._propagation = asyncio.create_task(self._propagate())
        return exchanged

    async def _propagate(self) -> None:
        with suppress(StoreUnavailable):  # the reaper goes on
            await self._store.maintenance.propagate()

    async def introduce(self, info: WorkerInfo) -> None:
        pass  # Redis asks nothing of a worker

    async def heartbeat(self, info: WorkerInfo, held: Sequence[tuple[str, int]]) -> Beats:
        return await self._store.attempts.heartbeat(info, held)

    async def begin(self, job_id: str, fence: int) -> bool:
        return await self._store.attempts.begin(job_id, fence)

    async def leave(self, worker: str) -> None:
        await self._store.attempts.leave(worker)

    async def unfinished(self, queues: Sequence[str]) -> int:
        return await self._store.attempts.unfinished(queues)

    async def release(self, held: Sequence[tuple[str, int]]) -> None:
        await self._store.attempts.release(held)

    async def write_output(self, patches: Sequence[tuple[str, int, OutputPatch]]) -> list[Kept]:
        return await self._store.attempts.write_output(patches)

    async def parents(self, job_id: str) -> list[Parent]:
        return await self._store.attempts.parents(job_id)

    async def wait(self, request: ClaimRequest) -> Claimed:
        block_s = min(self.lease_ms / 3000, _LONGEST_WAIT_S)
        if self._inbox is None:
            self._inbox = await self._waiting.enter_async_context(self._store.attempts.own_connection(block_s))
        return await self._store.attempts.wait(request, self._inbox, block_s)

    def cancels(self) -> AsyncIterator[tuple[str, str, int]]:
        return self._store.attempts.cancels()

    async def aclose(self) -> None:
        if self._propagation is not None:
            await self._propagation
        await self._waiting.aclose()
