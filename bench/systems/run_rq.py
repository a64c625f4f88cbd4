"""RQ: its worker without a fork per job, jobs enqueued in one pipeline, JSON, no results kept."""
# mypy: ignore-errors

import program
from redis import Redis
from rq import Queue, SimpleWorker
from rq.serializers import JSONSerializer
from rq.timeouts import BaseDeathPenalty


class NoPenalty(BaseDeathPenalty):
    """No alarm signal per job: no-op jobs need none."""

    def setup_death_penalty(self):
        pass

    def cancel_death_penalty(self):
        pass


class Worker(SimpleWorker):
    death_penalty_class = NoPenalty


class System:
    def __init__(self):
        self.redis = Redis(port=program.PORT)
        self.queue = Queue("bench", connection=self.redis, serializer=JSONSerializer)

    def submit(self):
        self.queue.enqueue("program.noop", result_ttl=0)

    def submit_stamp(self, number):
        self.queue.enqueue("program.stamp", number, result_ttl=0)

    def submit_many(self, count):
        for start in range(0, count, 1000):
            size = min(1000, count - start)
            self.queue.enqueue_many([Queue.prepare_data("program.noop", result_ttl=0) for _ in range(size)])

    def work(self):
        worker = Worker([self.queue], connection=self.redis, serializer=JSONSerializer, log_job_description=False)
        worker.work(logging_level="WARNING")


program.main(System())
