"""SAQ: 100 jobs at once, finished jobs not kept, enqueued 50 at once, JSON."""
# mypy: ignore-errors

import asyncio

import program
from saq import Queue, Worker

PARALLEL = 50


async def noop(_context):
    program.noop()


async def stamp(_context, *, number):
    program.stamp(number)


class System:
    def __init__(self):
        self.queue = Queue.from_url(program.URL, max_concurrent_ops=PARALLEL)

    async def submit(self):
        await self.queue.enqueue("noop", ttl=-1)

    async def submit_stamp(self, number):
        await self.queue.enqueue("stamp", number=number, ttl=-1)

    async def submit_many(self, count):
        for start in range(0, count, PARALLEL):
            size = min(PARALLEL, count - start)
            await asyncio.gather(*(self.queue.enqueue("noop", ttl=-1) for _ in range(size)))

    async def work(self):
        await Worker(self.queue, functions=[noop, stamp], concurrency=100).start()


program.main(System())
