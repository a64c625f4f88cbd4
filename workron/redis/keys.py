"""The names of all keys; `lua/lib/core.lua` spells the same ones in Redis.

`workron/doctor/key_schema.py` derives the patterns of the doctor and docs/keys.md from these methods. It adds only the
names that no other Python code needs.
"""

from typing import Final


class Keys:
    """Key names of one namespace. All stand in one hash slot: `workron:{<namespace>}:…`."""

    def __init__(self, namespace: str) -> None:
        self.prefix: Final = f"workron:{{{namespace}}}:"
        self.meta: Final = f"{self.prefix}meta"
        self.guard: Final = f"{self.prefix}guard"
        self.jobs: Final = f"{self.prefix}jobs"
        self.leases: Final = f"{self.prefix}leases"
        self.due: Final = f"{self.prefix}due"
        self.queues: Final = f"{self.prefix}queues"
        self.pending_queues: Final = f"{self.prefix}queues:pending"
        self.workers: Final = f"{self.prefix}workers"
        self.batches: Final = f"{self.prefix}batches"
        self.arrays: Final = f"{self.prefix}arrays"
        self.actions: Final = f"{self.prefix}actions"
        self.actions_open: Final = f"{self.prefix}actions:open"
        self.schedules: Final = f"{self.prefix}schedules"
        self.schedules_due: Final = f"{self.prefix}schedules:due"
        self.propagate: Final = f"{self.prefix}propagate"
        self.events: Final = f"{self.prefix}events"
        self.cancels: Final = f"{self.prefix}cancels"
        self.gates: Final = f"{self.prefix}gates"
        self.quarantine: Final = f"{self.prefix}quarantine"
        self.api_keys: Final = f"{self.prefix}apikeys"
        self.audit: Final = f"{self.prefix}audit"

    def job(self, job_id: str) -> str:
        return f"{self.prefix}job:{job_id}"

    def parents(self, job_id: str) -> str:
        """The hash of a job's edges that are not satisfied."""
        return f"{self.prefix}job:{job_id}:parents"

    def children(self, job_id: str) -> str:
        """The list of a job's dependents."""
        return f"{self.prefix}job:{job_id}:children"

    def heartbeat(self, job_id: str) -> str:
        return f"{self.prefix}job:{job_id}:heartbeat"

    def output(self, job_id: str, fence: str) -> str:
        return f"{self.prefix}job:{job_id}:output:{fence}"

    def queue(self, queue: str) -> str:
        return f"{self.prefix}queue:{queue}"

    def pending(self, queue: str, priority: int | str) -> str:
        return f"{self.prefix}queue:{queue}:pending:{priority}"

    def index(self, queue: str | None, status: str) -> str:
        """The sorted set of a queue's, or of all, blocked, done, failed, cancelled or skipped jobs."""
        return f"{self.prefix}jobs:{status}" if queue is None else f"{self.prefix}queue:{queue}:{status}"

    def starts(self, queue: str) -> str:
        """The list of a queue's last starts, where a rate is set for it."""
        return f"{self.prefix}queue:{queue}:starts"

    def concurrency_keys(self, queue: str) -> str:
        """The sorted set of concurrency keys of which jobs are pending in a queue, all with the score 0."""
        return f"{self.prefix}queue:{queue}:keys"

    def parked(self, queue: str) -> str:
        """The sorted set of workers that wait for jobs of a queue."""
        return f"{self.prefix}queue:{queue}:parked"

    def inbox(self, name: str) -> str:
        """The list by which waiting workers are woken."""
        return f"{self.prefix}inbox:{name}"

    def worker(self, worker: str) -> str:
        return f"{self.prefix}worker:{worker}"

    def batch(self, batch: str) -> str:
        return f"{self.prefix}batch:{batch}"

    def workflow(self, workflow: str) -> str:
        return f"{self.prefix}workflow:{workflow}"

    def array(self, job_id: str) -> str:
        return f"{self.prefix}array:{job_id}"

    def array_skips(self, job_id: str) -> str:
        """The set of indexes that were cancelled before their tasks were made."""
        return f"{self.prefix}array:{job_id}:skip"

    def array_values(self, job_id: str) -> str:
        return f"{self.prefix}array:{job_id}:values"

    def array_followers(self, job_id: str) -> str:
        """The list of the arrays whose tasks depend on the tasks of this one."""
        return f"{self.prefix}array:{job_id}:followers"

    def array_ended(self, job_id: str) -> str:
        """The list of indexes whose end the followers have not seen."""
        return f"{self.prefix}array:{job_id}:ended"

    def schedule(self, name: str) -> str:
        return f"{self.prefix}schedule:{name}"

    def schedule_runs(self, name: str) -> str:
        return f"{self.prefix}schedule:{name}:runs"

    def concurrency(self, name: str) -> str:
        """The hash of a concurrency key: its limit, and what it counts."""
        return f"{self.prefix}concurrency:{name}"

    def slots(self, name: str) -> str:
        """The sorted set of the running jobs of a concurrency key."""
        return f"{self.prefix}concurrency:{name}:running"

    def in_line(self, name: str, queue: str) -> str:
        """The sorted set of a queue's pending jobs of a concurrency key, by place; negative: in the queue's list."""
        return f"{self.prefix}concurrency:{name}:waiting:{queue}"

    def workflow_jobs(self, workflow: str) -> str:
        return f"{self.prefix}workflow:{workflow}:jobs"

    def unique(self, key: str) -> str:
        """The holder of a unique key."""
        return f"{self.prefix}unique:{key}"

    def idempotency(self, name: str) -> str:
        """The entry of a submission with an Idempotency-Key; `name`: `<api key>:<key>`."""
        return f"{self.prefix}idempotency:{name}"

    def returned(self, first: str) -> str:
        """The jobs of a submission that were not stored, with the holders of their unique keys."""
        return f"{self.prefix}returned:{first}"

    def api_key(self, key_id: str) -> str:
        """The hash of an API key, without the key itself."""
        return f"{self.prefix}apikey:{key_id}"

    def action(self, action: str) -> str:
        return f"{self.prefix}action:{action}"

    def set_aside(self, name: str) -> str:
        """The new name of a key of a foreign type; `name` is the old one, without the prefix."""
        return f"{self.prefix}set-aside:{name}"
