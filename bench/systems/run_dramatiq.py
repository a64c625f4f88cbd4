"""Dramatiq: one process with 32 threads, only the middleware that retries and limits age, JSON."""
# mypy: ignore-errors

import time

import dramatiq
import program
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import AgeLimit, Retries

broker = RedisBroker(port=program.PORT, middleware=[AgeLimit(), Retries()])
dramatiq.set_broker(broker)


@dramatiq.actor
def noop():
    program.noop()


@dramatiq.actor
def stamp(number):
    program.stamp(number)


class System:
    def submit(self):
        noop.send()

    def submit_stamp(self, number):
        stamp.send(number)

    def submit_many(self, count):
        for _ in range(count):
            noop.send()

    def work(self):
        worker = dramatiq.Worker(broker, worker_threads=32, worker_timeout=20)
        worker.start()
        while True:  # its threads work; the bench kills the process
            time.sleep(3600)  # without end: this process is killed


program.main(System())
