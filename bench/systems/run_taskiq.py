"""taskiq with taskiq-redis' acknowledging stream broker: 50 async tasks, 100 messages per read, no result backend."""
# mypy: ignore-errors

import asyncio

import program
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

PARALLEL = 50
broker = RedisStreamBroker(program.URL, consumer_id="0", xread_count=100)


@broker.task(task_name="noop")
async def noop() -> None:
    program.noop()


@broker.task(task_name="stamp")
async def stamp(number: int) -> None:
    program.stamp(number)


class System:
    def __init__(self):
        self.open = False

    async def _ready(self):
        if not self.open:
            await broker.startup()
            self.open = True

    async def submit(self):
        await self._ready()
        await noop.kiq()

    async def submit_stamp(self, number):
        await stamp.kiq(number)

    async def submit_many(self, count):
        for start in range(0, count, PARALLEL):
            await asyncio.gather(*(noop.kiq() for _ in range(min(PARALLEL, count - start))))

    async def work(self):
        await run_receiver_task(broker, max_async_tasks=50, max_prefetch=0, run_startup=True)


program.main(System())
