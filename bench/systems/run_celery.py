"""Celery: JSON, results ignored, no events, gossip, mingle or heartbeat, prefetch 64, in the worker process itself."""
# mypy: ignore-errors

import program
from celery import Celery

app = Celery("bench", broker=program.URL)
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=64,
    task_serializer="json",
    accept_content=["json"],
    broker_pool_limit=1,
    worker_hijack_root_logger=False,
)


@app.task(name="noop")
def noop():
    program.noop()


@app.task(name="stamp")
def stamp(number):
    program.stamp(number)


class System:
    def submit(self):
        noop.delay()

    def submit_stamp(self, number):
        stamp.delay(number)

    def submit_many(self, count):
        with app.producer_pool.acquire(block=True) as producer:
            for _ in range(count):
                noop.apply_async(producer=producer)

    def work(self):
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=WARNING"]
        app.worker_main(["worker", "--pool=solo", *quiet])


program.main(System())
