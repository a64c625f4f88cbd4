"""Cancels for workers that poll over HTTP: one subscription for all of them."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from api.store_outage import OutageWatch
from workron.errors import StoreUnavailable
from workron.runtime.async_tools import end
from workron.runtime.signals import happens
from workron.store.source import RedisSource

_KEPT_S: Final = 30.0
"""Time after which cancels of a worker that no longer polls are dropped; heartbeats report cancels too."""
_MOST_KEPT: Final = 1000
_AGAIN_S: Final = 1.0


@dataclass(slots=True)
class _Box:
    fences: dict[int, str] = field(default_factory=dict)
    filled: asyncio.Event = field(default_factory=asyncio.Event)
    asking: int = 0
    expiry: asyncio.TimerHandle | None = None


class CancelBoard:
    """Buffers the cancels of polling workers between their requests."""

    def __init__(self, source: RedisSource, stopping: asyncio.Event, outages: OutageWatch) -> None:
        self._source = source
        self._stopping = stopping
        self._outages = outages
        self._boxes: dict[str, _Box] = {}
        self._reading: asyncio.Task[None] | None = None

    async def wait(self, worker: str, within_s: float) -> list[tuple[str, int]]:
        """Return the (job, fence) pairs to cancel once there are any; none after a timeout or when the server stops."""
        box = self._boxes.setdefault(worker, _Box())
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        box.asking += 1
        try:
            if not box.fences and not self._stopping.is_set():
                await happens(box.filled, within_s=within_s)
        finally:
            box.asking -= 1
            if box.expiry is not None:
                box.expiry.cancel()
            box.expiry = asyncio.get_running_loop().call_later(_KEPT_S, self._drop, worker)
        asked, box.fences = box.fences, {}
        box.filled.clear()
        return [(job_id, fence) for fence, job_id in asked.items()]

    async def aclose(self) -> None:
        for box in self._boxes.values():
            if box.expiry is not None:
                box.expiry.cancel()
        await end([self._reading] if self._reading is not None else [])

    def _drop(self, worker: str) -> None:
        box = self._boxes[worker]
        box.expiry = None
        if not box.asking:  # else a timer is set again when the last one has its answer
            del self._boxes[worker]

    async def _read(self) -> None:
        while self._boxes:
            try:
                async for worker, job_id, fence in self._source.cancels():
                    box = self._boxes.get(worker)
                    if box is not None and len(box.fences) < _MOST_KEPT:
                        box.fences[fence] = job_id
                        box.filled.set()
            except StoreUnavailable as error:
                self._outages.failed(error)
                await asyncio.sleep(_AGAIN_S)
