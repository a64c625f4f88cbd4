"""Workron: 200 slots, jobs submitted 400 at a time; the real worker, only the executor starts no commands."""

import asyncio
import contextlib
import os

import program  # type: ignore[import-not-found] # its folder is on the path only when it runs as a script

from bench.quiet import quiet
from bench.settings import settings_for
from bench.systems.noop import NoopExecutor
from workers.worker import Worker
from workron import ids
from workron.models import Claim, NewJob
from workron.runtime import gc_tuning
from workron.store import Store
from workron.store.source import RedisSource

SLOTS = int(os.environ.get("BENCH_SLOTS", "200"))
CHUNK = 400
"""What fits one call."""


def body(claim: Claim) -> None:
    """Count the job, or stamp it when its command is a number."""
    if claim.command is not None and claim.command.isdecimal():
        program.stamp(int(claim.command))
    else:
        program.noop()


class System:
    def __init__(self) -> None:
        self._store: Store | None = None

    @property
    def store(self) -> Store:
        if self._store is None:
            self._store = Store.connect(settings_for(program.URL))
        return self._store

    async def submit(self) -> None:
        await self.store.submit([NewJob(ids.new_id(), command="true")])

    async def submit_stamp(self, number: int) -> None:
        await self.store.submit([NewJob(ids.new_id(), command=str(number))])

    async def submit_many(self, count: int) -> None:
        for start in range(0, count, CHUNK):
            names = ids.new_ids(min(CHUNK, count - start))
            await self.store.submit([NewJob(name, command="true") for name in names])

    async def work(self) -> None:
        async with self.store as store, NoopExecutor(body) as executor:
            await Worker(settings_for(program.URL, SLOTS), RedisSource(store), executor).run()


if __name__ == "__main__":
    quiet()
    gc_tuning.relax()
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        program.main(System())
