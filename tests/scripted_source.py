"""A worker on a source that answers as it is told."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from workers.executor import Executor
from workers.limits import NO_LIMITS, Limits
from workers.worker import Worker
from workron.errors import StoreUnavailable
from workron.models import (
    Beat,
    Claim,
    Claimed,
    ClaimRequest,
    Finished,
    OutputPatch,
    Parent,
    Result,
    Status,
    Verdict,
    WorkerInfo,
)
from workron.models.exchange import Exchanged, Kept
from workron.models.workers import Beats, Drain
from workron.settings import Settings

Until = Callable[..., Awaitable[None]]


class Scripted:
    """A source that answers each exchange with the next item of `answers`, with nothing when there is none."""

    def __init__(self, lease_ms: int = 30_000) -> None:
        self.lease_ms = lease_ms
        self.answers: list[Any] = []
        self.requests: list[ClaimRequest | None] = []
        self.results: list[list[Result]] = []
        self.released: list[tuple[str, int]] = []
        self.written: list[OutputPatch] = []
        self.waits: list[ClaimRequest] = []
        self.woken: asyncio.Queue[Claimed] = asyncio.Queue()
        """What those get that wait."""
        self.asked: asyncio.Queue[tuple[str, str, int]] = asyncio.Queue()
        self.writing = asyncio.Event()
        self.writing.set()
        self.refusals = 0
        self.beats: dict[int, Beat] = {}
        self.beat_takes_s = 0.0
        self.infos: list[WorkerInfo] = []
        self.drain: Drain | None = None
        self.left: list[str] = []
        self.waiting = 0

    def claims(self, *claims: Claim, **more: Any) -> None:
        self.answers.append(Claimed(claims, answered=bool(claims), **more))

    async def exchange(self, worker: str, results: Sequence[Result], request: ClaimRequest | None) -> Exchanged:
        self.requests.append(request)
        self.results.append(list(results))
        answer = self.answers.pop(0) if self.answers else Claimed(parked=bool(request and request.park_ms))
        if callable(answer):
            answer = await answer()
        if isinstance(answer, Exception):
            raise answer
        return Exchanged([Finished(one.id, Verdict.ACCEPTED, Status.DONE) for one in results], answer, False)

    async def introduce(self, info: WorkerInfo) -> None:
        pass

    async def heartbeat(self, info: WorkerInfo, held: Sequence[tuple[str, int]]) -> Beats:
        self.infos.append(info)
        await asyncio.sleep(self.beat_takes_s)
        return Beats({fence: self.beats.get(fence, Beat.OK) for _, fence in held}, self.drain)

    async def begin(self, job_id: str, fence: int) -> bool:
        return True

    async def leave(self, worker: str) -> None:
        self.left.append(worker)

    async def unfinished(self, queues: Sequence[str]) -> int:
        return self.waiting

    async def release(self, held: Sequence[tuple[str, int]]) -> None:
        self.released += held

    async def write_output(self, patches: Sequence[tuple[str, int, OutputPatch]]) -> list[Kept]:
        await self.writing.wait()
        if self.refusals:
            self.refusals -= 1
            raise StoreUnavailable("away")
        self.written += [patch for _, _, patch in patches]
        return [Kept.STORED] * len(patches)

    async def parents(self, job_id: str) -> list[Parent]:
        return []

    async def wait(self, request: ClaimRequest) -> Claimed:
        self.waits.append(request)
        return await self.woken.get()

    def wake(self, *claims: Claim) -> None:
        self.woken.put_nowait(Claimed(claims, answered=bool(claims), parked=not claims))

    def request_id(self) -> str:
        """The id of the last claim request."""
        return [request for request in self.requests if request is not None][-1].request_id

    async def cancels(self) -> AsyncIterator[tuple[str, str, int]]:
        while True:
            yield await self.asked.get()

    async def aclose(self) -> None:
        pass


@asynccontextmanager
async def working(
    source: Scripted, slots: int = 1, limits: Limits = NO_LIMITS, **settings: Any
) -> AsyncIterator[Worker]:
    async with Executor(kill_grace_s=0.2) as executor:
        worker = Worker(Settings(slots=slots, **settings), source, executor, limits)
        task = asyncio.create_task(worker.run())
        yield worker
        worker.stop_now()
        await asyncio.wait_for(task, 10)
