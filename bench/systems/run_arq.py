"""arq: 200 jobs at once, polling every 10 ms instead of 500, no results kept or logged."""
# mypy: ignore-errors

import asyncio
import logging

import program
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker

SETTINGS = RedisSettings(host="127.0.0.1", port=program.PORT)


async def noop(_context):
    program.noop()


async def stamp(_context, number):
    program.stamp(number)


class System:
    def __init__(self):
        self.pool = None

    async def _queue(self):
        if self.pool is None:
            self.pool = await create_pool(SETTINGS)
        return self.pool

    async def submit(self):
        await (await self._queue()).enqueue_job("noop")

    async def submit_stamp(self, number):
        await (await self._queue()).enqueue_job("stamp", number)

    async def submit_many(self, count):
        queue = await self._queue()
        for start in range(0, count, 50):
            await asyncio.gather(*(queue.enqueue_job("noop") for _ in range(min(50, count - start))))

    async def work(self):
        logging.getLogger("arq").setLevel(logging.WARNING)
        worker = Worker(
            [noop, stamp], redis_settings=SETTINGS, max_jobs=200, poll_delay=0.01, keep_result=0, log_results=False
        )
        await worker.main()


program.main(System())
