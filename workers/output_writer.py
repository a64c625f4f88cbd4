"""Sends the output of running commands to the store, so that it can be followed; the last part goes with the result."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from workers.attempt import Attempt
from workers.command_files import Notes
from workers.refusals import Refusals, send_in_parts
from workers.shortage import Shortage
from workers.source import JobSource
from workron.errors import ApiRefuses, CallRefused, StoreUnavailable
from workron.models import OutputPatch
from workron.models.exchange import Kept

EVERY_S: Final = 0.5
MAX_PATCHES: Final = 150
MAX_BYTES: Final = 1_000_000
"""Maximum size of a call; one patch is at most head and tail together."""


class OutputWriter:
    """Writes buffered output in calls of bounded size."""

    def __init__(self, source: JobSource, delivered: asyncio.Event, notes: Notes) -> None:
        self._source = source
        self._delivered = delivered
        self._notes = notes
        self._loop = asyncio.get_running_loop()
        self._refusals = Refusals("output")
        self._paused_until_s = 0.0
        self.under_way: set[int] = set()
        """Fences with output in an open call: their result has to wait, or it would overtake the output."""

    async def run(self, attempts: Collection[Attempt]) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            await self.tick(attempts)

    async def tick(self, attempts: Collection[Attempt]) -> None:
        """Send the new output and progress of running attempts."""
        if self._loop.time() < self._paused_until_s:
            return
        with suppress(Shortage):
            self._notes.keep()  # what runs may be about to write a result
        progress = dict(self._notes.progress(attempt.claim.fence for attempt in attempts))
        calls: list[list[tuple[Attempt, OutputPatch]]] = []
        room = 0
        for attempt in attempts:
            if attempt.task.done():
                continue
            patch = attempt.take_output()
            if said := progress.get(attempt.claim.fence):
                patch = replace(patch or OutputPatch(0, b"", attempt.output.total), progress=said)
            if patch is None:
                continue
            if not calls or len(patch.data) > room or len(calls[-1]) == MAX_PATCHES:
                calls.append([])
                room = MAX_BYTES
            calls[-1].append((attempt, patch))
            room -= len(patch.data)
            self.under_way.add(attempt.claim.fence)
        for call in calls:
            await self._send(call)

    async def _send(self, call: list[tuple[Attempt, OutputPatch]]) -> None:
        fences = {attempt.claim.fence for attempt, _ in call}
        kept: Sequence[Kept | CallRefused] = [Kept.FULL] * len(call)
        try:
            kept = await self._write(call)
            self._refusals.accepted()
        except ApiRefuses as error:
            self._paused_until_s = self._loop.time() + self._refusals.refused(error)
        except StoreUnavailable:
            pass  # the heartbeat logs the outage
        finally:
            self.under_way -= fences
            self._delivered.set()
        for (attempt, patch), state in zip(call, kept, strict=True):
            if isinstance(state, CallRefused):
                attempt.refuse(str(state))
            elif state is Kept.FULL:
                if patch.data:
                    attempt.output.put_back(patch)
                self._notes.forget(attempt.claim.fence)

    async def _write(self, call: Sequence[tuple[Attempt, OutputPatch]]) -> Sequence[Kept | CallRefused]:
        try:
            return await self._write_all(call)
        except CallRefused:
            return await send_in_parts(call, self._write_all)

    async def _write_all(self, call: Sequence[tuple[Attempt, OutputPatch]]) -> list[Kept]:
        return await self._source.write_output([(a.claim.id, a.claim.fence, patch) for a, patch in call])
