"""huey: blocking pops, one thread, no results stored, pickle (its own)."""
# mypy: ignore-errors

import logging

import program
from huey import RedisHuey

huey = RedisHuey("bench", port=program.PORT, results=False, blocking=True)


@huey.task()
def noop():
    program.noop()


@huey.task()
def stamp(number):
    program.stamp(number)


class System:
    def submit(self):
        noop()

    def submit_stamp(self, number):
        stamp(number)

    def submit_many(self, count):
        for _ in range(count):
            noop()

    def work(self):
        logging.getLogger("huey").setLevel(logging.WARNING)
        huey.create_consumer(workers=1, periodic=False).run()


program.main(System())
