"""ardiq: its Rust core with 100 tasks at once, enqueued in batches of 1,000, results kept for a second."""
# mypy: ignore-errors

import program
from ardiq import Ardiq

app = Ardiq(redis_url=program.URL, queue_name="bench", concurrency=100, prefetch=200, result_ttl_ms=1000)


@app.task()
async def noop() -> None:
    program.noop()


@app.task()
async def stamp(number: int) -> None:
    program.stamp(number)


class System:
    async def submit(self):
        await noop.enqueue()

    async def submit_stamp(self, number):
        await stamp.enqueue(number)

    async def submit_many(self, count):
        for start in range(0, count, 1000):
            await app.enqueue_many([noop.prepare() for _ in range(min(1000, count - start))])

    async def work(self):
        await app.run()


program.main(System())
