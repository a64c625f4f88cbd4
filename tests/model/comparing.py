"""All that is visible of a store, beside what the model says of it."""

import dataclasses
from collections import Counter
from typing import Any

from tests.model.bridge import Bridge
from tests.model.model import Model
from tests.model.schedule_comparing import differences_of_schedules
from tests.model.state import Job, Queue, Workflow, differing, shown
from workron.models import Job as Document
from workron.models import QueueState, Task
from workron.models import Workflow as WorkflowDocument


class Differences:
    """Reads the store, and tells in words where the model says otherwise."""

    def __init__(self, bridge: Bridge, model: Model) -> None:
        self._store = bridge.store
        self._client = bridge.bench.client
        self._keys = bridge.bench.keys
        self._model = model

    async def found(self) -> list[str]:
        found = [*await self._jobs(), *await self._queues(), *await self._workflows()]
        found += await differences_of_schedules(self._store, self._model.book)
        fence = int(await self._client.hget(self._keys.meta, "fence") or 0)
        return found + list(differing("the fence", {"last": fence}, {"last": self._model.fence}))

    async def _jobs(self) -> list[str]:
        ids = [one.decode() for one in await self._client.zrange(self._keys.jobs, 0, -1)]
        documents = dict(zip(ids, await self._store.jobs(ids), strict=True))
        staged = [job.id for batch in self._model.staged.values() for job in batch.jobs]
        seen = [job for job in await self._store.jobs(staged) if job]
        found = [f"job {job.id} is seen, and its submission is not open" for job in seen]
        found += [f"job {one} is there, or not" for one in documents.keys() ^ self._model.jobs.keys()]
        for job_id, document in documents.items():
            if document and job_id in self._model.jobs:
                expected = job_of(self._model.jobs[job_id], self._model)
                found += differing(f"job {job_id}", job_of_store(document), expected)
        return found

    async def _queues(self) -> list[str]:
        states = {state.name: state for state in await self._store.queues()}
        found = [f"queue {one} is there, or not" for one in states.keys() ^ self._model.queues.keys()]
        for name in states.keys() & self._model.queues.keys():
            found += differing(f"queue {name}", queue_of_store(states[name]), queue_of(name, self._model))
            for priority, expected in self._model.queues[name].lists.items():
                listed = await self._client.lrange(self._keys.pending(name, priority), 0, -1)
                actual = self._waiting([one.decode() for one in listed], name, priority)
                self._adopt_order_of_finals(expected, actual)
                found += differing(f"queue {name}", {f"pending:{priority}": actual}, {f"pending:{priority}": expected})
        return found

    def _waiting(self, ids: list[str], queue: str, priority: int) -> list[str]:
        """Those of a list that count: who is popped and does not wait there any more is dropped."""
        jobs = [self._model.jobs[one] for one in dict.fromkeys(ids) if one in self._model.jobs]
        waiting = [job for job in jobs if (job.status, job.queue, job.priority) == ("pending", queue, priority)]
        return [job.id for job in waiting if job.new.concurrency is None]

    def _adopt_order_of_finals(self, expected: list[str], actual: list[str]) -> None:
        finals = [one for one in actual if one in self._model.finals]
        places = [place for place, one in enumerate(expected) if one in self._model.finals]
        if len(finals) == len(places) > 1:
            for place, one in zip(places, finals, strict=True):
                expected[place] = one

    async def _workflows(self) -> list[str]:
        found = []
        for name, workflow in self._model.workflows.items():
            document = await self._store.workflow(name)
            found += differing(f"workflow {name}", workflow_of_store(document), workflow_of(workflow, self._model))
        return found


def job_of(job: Job, model: Model) -> dict[str, Any]:
    beats = job.status == "running" and job.alive_until > model.now
    names = (
        "run",
        "status",
        "reason",
        "queue",
        "priority",
        "attempts",
        "exit_code",
        "signal",
        "error",
        "worker",
        "workflow",
    )
    times = ("created_at", "run_at", "deadline_at", "expires_at", "started_at", "finished_at", "cancel_requested_at")
    parents = [(edge.job, edge.when, model.jobs.get(edge.job)) for edge in job.new.depends_on]
    return {
        **{name: getattr(job, name) for name in names},
        **{name: getattr(job, name) for name in times},
        "caused_by": job.caused_by,
        "result": None if job.result is None else {"n": 1},
        "last_heartbeat_at": job.beat_at if beats else None,
        "dependencies": [(parent, when, of and of.status) for parent, when, of in parents],
        "final": job.new.final,
        "task": task_of(job, model),
        "array": array_of(job, model),
        "env": job.new.env,
    }


def task_of(job: Job, model: Model) -> Task | None:
    if job.task is None:
        return None
    array = model.jobs[job.task[0]].new.array
    return Task(*job.task, array.values[job.task[1]] if array and array.values else None)


def told_of_task(job: Job, model: Model) -> dict[str, Any] | None:
    """What a worker is told of a task that it claims."""
    task = task_of(job, model)
    if task is None:
        return None
    value = {} if task.value is None else {"value": task.value}
    return {"id": task.array, "index": task.index, "size": len(model.arrays[task.array].ids)} | value


def array_of(job: Job, model: Model) -> Any:
    array = job.new.array
    if array is None:
        return None
    counts = model.tasks_counted(model.arrays[job.id])
    return array.first, array.size, array.max_parallel, shown(counts), counts["reserved"]


def job_of_store(document: Document) -> dict[str, Any]:
    fields = {field.name: getattr(document, field.name) for field in dataclasses.fields(document)}
    fields |= {name.removesuffix("_ms"): value for name, value in fields.items() if name.endswith("_at_ms")}
    if array := document.array:
        fields["array"] = array.first, array.size, array.max_parallel, shown(Counter(array.counts)), array.rest
    return fields | {"dependencies": [(edge.job, edge.when, edge.status) for edge in document.dependencies]}


def queue_of(name: str, model: Model) -> dict[str, Any]:
    queue: Queue = model.queues[name]
    counts = Counter(job.status for job in model.jobs.values() if job.queue == name)
    set_for_it = {what: getattr(queue, what) for what in ("paused", "max_running", "max_pending", "rate")}
    return {"counts": shown(counts)} | set_for_it


def queue_of_store(state: QueueState) -> dict[str, Any]:
    set_for_it = {what: getattr(state, what) for what in ("paused", "max_running", "max_pending", "rate")}
    return {"counts": shown(Counter(state.counts))} | set_for_it


def workflow_of(workflow: Workflow, model: Model) -> dict[str, Any]:
    how, cause = workflow.stopped or (None, None)
    return {
        "created_at_ms": workflow.created_at,
        "size": len(workflow.jobs),
        "counts": shown(model.counts(workflow)),
        "stopped": how,
        "stopped_by": cause or None,
        "final": workflow.final,
    }


def workflow_of_store(document: WorkflowDocument) -> dict[str, Any]:
    fields = {field.name: getattr(document, field.name) for field in dataclasses.fields(document)}
    return fields | {"counts": shown(Counter(document.counts))}
