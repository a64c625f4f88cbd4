"""An audit of a namespace: every job is where its status says, every count is right, nothing is left over.

The store's tests end with it. It counts everything from the job hashes, and shares no code with the doctor.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from redis.asyncio import Redis

from tests.concurrency_audit import ConcurrencyAudit
from tests.snapshot import Snapshot
from workron.models import PRIORITIES, TERMINAL, Status
from workron.models.user_json import MAX_METADATA, MAX_RESULT, write
from workron.redis import formats
from workron.redis.keys import Keys
from workron.schedules.models import SHOWN_RUNS

Row = Mapping[str, str]
INDEXED = ("blocked", "done", "failed", "cancelled", "skipped")


def _is_task(row: Row, array: str) -> bool:
    return row.get("array") == array


def own_words(row: Row) -> Iterator[str]:
    """What is wrong with what a job says of itself, in words."""
    if "progress" in row and row["status"] not in {"running", *TERMINAL}:
        yield f"{row['status']}, but with the progress of an attempt"
    for name, limit in (("result", MAX_RESULT), ("metadata", MAX_METADATA)):
        try:
            write(json.loads(row.get(name, "null")), limit)
        except ValueError as error:
            yield f"its {name} {error}"
    if "retry" in row and formats.retry(*formats.read_retry(row["retry"])) != row["retry"]:
        yield f"its policy {row['retry']!r} is written in another way"
    if ("depends_on" in row) != bool(json.loads(row.get("more", "{}")).get("parents")):
        yield "its worker is told of parents, or not, against its dependencies"


def timers(job_id: str, row: Row) -> Iterator[str]:
    """What a job that has not ended has in `due`."""
    if row["status"] in TERMINAL:
        return
    if row["status"] == "scheduled":
        yield job_id
    if "deadline_at" in row and "expired_at" not in row:
        yield f"deadline {job_id}"
    if "expires_at" in row and row["status"] != "running" and row.get("attempts", "0") == "0":
        yield f"expires {job_id}"


def own_timers(row: Row) -> Iterator[str]:
    """What is wrong with what a job says of its timers, in words."""
    has = "deadline_at" in row or "expires_at" in row or "deadline_ms" in row or "expires_ms" in row
    if has and "timers" not in row.get("hooks", ""):
        yield "it has timers, and does not hold them"
    stopping = ("running", "blocked") if "array_size" in row else ("running",)
    if "expired_at" in row and row["status"] not in (*stopping, "failed", "cancelled"):
        yield f"its deadline is said to have stopped it, but it is {row['status']}"


def edge_words(row: Row, edges: Collection[str], queued: Mapping[str, bool]) -> Iterator[str]:
    """What is wrong with a job's edges to its parents, in words; whether its children are said to be visited."""
    broken = sum(edge.startswith("!") for edge in edges)
    if int(row.get("broken", "0")) != broken:
        yield f"says {row.get('broken')} broken edges, has {broken}"
    if "batch" in row:
        return
    if row["status"] == "blocked" and (broken or not (edges or "array_size" in row or "final" in row)):
        yield f"blocked with the edges {list(edges)}"
    if row["status"] == "skipped" and not broken and "array" not in row:
        yield "skipped without a broken edge"
    if queued["cascade"] < ("cascade_at" in row):
        yield "a cancel is to go on from it, against the list"
    if ("edge_cursor" in row) != queued["edges"]:
        yield "its edges are to be visited, or not, against the list"


class Audit:
    """Reads a whole namespace, then tells what does not fit together."""

    def __init__(self, client: Redis, keys: Keys) -> None:
        self._server = client
        self._client: Snapshot
        self._keys = keys
        self.jobs: dict[str, Row] = {}
        self._held: set[str] = set()
        self._of_queue: dict[str, list[tuple[str, Row]]] = {}

    async def problems(self) -> list[str]:
        await self.read_jobs()
        found = [f"{job_id} has no status, but {row}" for job_id, row in self.jobs.items() if "status" not in row]
        if found:
            return found
        queues = [name.decode() for name in await self._client.zrange(self._keys.queues, 0, -1)]
        concurrency = ConcurrencyAudit(self._client, self._keys, self.jobs)
        found += await concurrency.problems(queues)
        self._held = concurrency.held
        for queue in queues:
            found += await self._queue(queue)
        found += await self._of_all_queues()
        found += await self._waiting(queues)
        found += await self._running_and_scheduled()
        found += await self._workflows()
        found += await self._arrays()
        found += await self._unique_keys()
        found += await self._actions()
        found += await self._schedules()
        found += await self._edges()
        for job_id, row in self.jobs.items():
            found += [f"{job_id}: {problem}" for problem in own_words(row)]
            found += [f"{job_id}: {problem}" for problem in own_timers(row)]
        return found

    async def _hash(self, key: str) -> Row:
        (row,) = await self._hashes([key])
        return row

    async def _hashes(self, keys: Sequence[str]) -> list[Row]:
        """Return what these keys hold, in a round trip for each thousand."""
        found: list[Row] = []
        for start in range(0, len(keys), 1000):
            pipeline = self._client.pipeline(transaction=False)
            for key in keys[start : start + 1000]:
                pipeline.hgetall(key)
            found += [
                {name.decode(): value.decode("utf-8", "replace") for name, value in row.items()}
                for row in await pipeline.execute()
            ]
        return found

    async def read_jobs(self) -> None:
        """Read everything; `jobs` are those of submissions that are open or admitted."""
        self._client = await Snapshot.of(self._server, self._keys.prefix)
        prefix = self._keys.job("")
        found = {key.decode().removeprefix(prefix) async for key in self._client.scan_iter(f"{prefix}*", count=1000)}
        ids = sorted(job_id for job_id in found if ":" not in job_id)
        rows = dict(zip(ids, await self._hashes([f"{prefix}{job_id}" for job_id in ids]), strict=True))
        batches = sorted({row["batch"] for row in rows.values() if "batch" in row})
        states = await self._hashes([self._keys.batch(batch) for batch in batches])
        opened = {batch for batch, said in zip(batches, states, strict=True) if said.get("state") == "open"}
        self.jobs = {i: row for i, row in rows.items() if row and ("batch" not in row or row["batch"] in opened)}
        for job_id, row in self._admitted():
            self._of_queue.setdefault(row.get("queue", "default"), []).append((job_id, row))

    def _admitted(self) -> Iterator[tuple[str, Row]]:
        return ((job_id, row) for job_id, row in self.jobs.items() if "batch" not in row)

    async def _queue(self, queue: str) -> list[str]:
        jobs = self._of_queue.get(queue, [])
        counted = Counter(row["status"] for _, row in jobs)
        said = await self._hash(self._keys.queue(queue))
        found = [
            f"queue {queue} counts {said.get(status, '0')} {status}, not {counted[status]}"
            for status in Status
            if int(said.get(status, "0")) != counted[status]
        ]
        pipeline = self._client.pipeline(transaction=False)
        for status in INDEXED:
            pipeline.zrange(self._keys.index(queue, status), 0, -1)
        for priority in PRIORITIES:
            pipeline.lrange(self._keys.pending(queue, priority), 0, -1)
        lists = [[one.decode() for one in ids] for ids in await pipeline.execute()]
        for status, ids in zip(INDEXED, lists, strict=False):
            actual = {job_id for job_id, row in jobs if row["status"] == status}
            found += [f"{one}: in the wrong of {queue}:{status}" for one in actual ^ set(ids)]
        waiting = {
            (one, str(priority)) for priority, ids in zip(PRIORITIES, lists[len(INDEXED) :], strict=True) for one in ids
        }
        pending = {(i, row.get("priority", "5")) for i, row in jobs if row["status"] == "pending"}
        return found + [f"{one}: pending, but in no list" for one, _ in pending - waiting if one not in self._held]

    async def _of_all_queues(self) -> list[str]:
        """The indexes over all queues have what those of the queues have."""
        found = []
        for status in INDEXED:
            actual = {job_id for job_id, row in self._admitted() if row["status"] == status}
            listed = {one.decode() for one in await self._client.zrange(self._keys.index(None, status), 0, -1)}
            found += [f"{one}: in the wrong of jobs:{status}" for one in actual ^ listed]
        pending = {row.get("queue", "default") for _, row in self._admitted() if row["status"] == "pending"}
        listed = {one.decode() for one in await self._client.zrange(self._keys.pending_queues, 0, -1)}
        return found + [f"queue {queue} has pending jobs, and is not said to" for queue in pending - listed]

    async def _waiting(self, queues: list[str]) -> list[str]:
        """What counts against the limits; a submission that is being staged has its room reserved."""
        if await self._client.exists(self._keys.batches):
            return []
        said = await self._hash(self._keys.meta)
        rows = await self._hashes([self._keys.queue(queue) for queue in queues])
        reserved = sum(int(row.get("reserved", "0")) for row in rows)
        waiting = sum(row["status"] in ("pending", "scheduled", "blocked") for _, row in self._admitted())
        arrays = [(job_id, row) for job_id, row in self._admitted() if "array_size" in row]
        rest = 0
        for job_id, row in arrays:
            about = await self._hash(self._keys.array(job_id))
            if "dropped" not in about:
                skips = await self._client.scard(self._keys.array_skips(job_id))
                rest += int(row["array_size"]) - int(about["made"]) - skips
        waiting += rest
        if reserved != rest or int(said.get("waiting", "0")) != waiting:
            return [f"{said.get('waiting')} jobs are said to wait, not {waiting}, with room reserved for {reserved}"]
        return []

    async def _running_and_scheduled(self) -> list[str]:
        members = {one.decode() for one in await self._client.zrange(self._keys.leases, 0, -1)}
        actual = {job_id for job_id, row in self._admitted() if row["status"] == "running"}
        found = [f"{one}: running, or not, against its index" for one in members ^ actual]
        scores = {
            one.decode(): int(at) for one, at in await self._client.zrange(self._keys.due, 0, -1, withscores=True)
        }
        expected = {one for job_id, row in self._admitted() for one in timers(job_id, row)}
        over = {f"expires {array}" for array in await self._begun_arrays()}  # acted on, or not yet: it means nothing
        scores = {one: at for one, at in scores.items() if not one.startswith("refill ")}
        found += [f"{one}: due, or not, against the index" for one in (scores.keys() ^ expected) - over]
        for one in scores.keys() & expected:
            kind, _, job_id = one.rpartition(" ")
            if kind and str(scores[one]) != self.jobs[job_id][f"{kind}_at"]:  # tests make scheduled jobs due by a score
                found.append(f"{one}: due at {scores[one]}, which is not what the job says")
        every = {one.decode() for one in await self._client.zrange(self._keys.jobs, 0, -1)}
        return found + [f"{one}: against the index of all jobs" for one in every ^ dict(self._admitted()).keys()]

    async def _begun_arrays(self) -> list[str]:
        arrays = [job_id for job_id, row in self._admitted() if "array_size" in row and "expires_at" in row]
        said = [await self._hash(self._keys.array(job_id)) for job_id in arrays]
        return [
            job_id
            for job_id, row in zip(arrays, said, strict=True)
            if "begun" in row or "cancel_requested_at" in self.jobs[job_id]
        ]

    async def _workflows(self) -> list[str]:
        found = []
        for workflow in {row["workflow"] for row in self.jobs.values() if "workflow" in row}:
            said = await self._hash(self._keys.workflow(workflow))
            found += [f"workflow {workflow} {problem}" for problem in await self._stops(workflow, said)]
            counted = Counter(row["status"] for _, row in self._admitted() if row.get("workflow") == workflow)
            for status in Status:
                if status not in TERMINAL and int(said.get(status, "0")) != counted[status]:
                    found.append(f"workflow {workflow} counts {said.get(status)} {status}, not {counted[status]}")
        return found

    async def _stops(self, workflow: str, said: Row) -> list[str]:
        """What is wrong with a workflow's stop and its final job."""
        found = []
        queued = {one.decode() for one in await self._client.lrange(self._keys.propagate, 0, -1)}
        if ("stop_at" in said) != (f"workflow:{workflow}" in queued) or ("stop_at" in said and "stopped" not in said):
            found.append("is being stopped, or not, against the list")
        final = self.jobs.get(said.get("final", ""))
        if final and final["status"] == "blocked":
            ended = sum(int(said.get(status, "0")) for status in TERMINAL)
            if ended >= int(said["size"]) - 1:
                found.append("has ended but for its final job, which waits")
        return found

    async def _arrays(self) -> list[str]:
        found = []
        prefix = self._keys.array("")
        async for key in self._client.scan_iter(f"{prefix}*", count=1000):
            job_id = key.decode().removeprefix(prefix).partition(":")[0]
            if job_id not in self.jobs and await self._client.ttl(key) < 0:
                found.append(f"{key.decode()} has outlived its job")
        for job_id, row in self.jobs.items():
            if "array_size" not in row or "batch" in row:
                continue
            said = await self._hash(self._keys.array(job_id))
            tasks = Counter(task["status"] for task in self.jobs.values() if _is_task(task, job_id))
            tasks[said.get("dropped_as", "cancelled")] += int(said.get("dropped", "0"))
            swept = await self._client.get(f"{self._keys.array(job_id)}:swept") or b""
            done = {8 * at + bit for at, byte in enumerate(swept) for bit in range(8) if byte & 128 >> bit}
            tasks["done"] += len(done)
            gone = {int(place) for place in await self._client.smembers(self._keys.array_skips(job_id))}
            if "follows" not in said:  # of those before, the set has only what was cancelled after all were made
                made = {int(task["index"]) for task in self.jobs.values() if _is_task(task, job_id)}
                last = int(said.get("dropped_from", said["made"]))
                gone |= set(range(last)) - made - done
            tasks["cancelled"] += len(gone)
            found += [
                f"array {job_id} counts {said.get(status, '0')} {status}, not {tasks[status]}"
                for status in Status
                if int(said.get(status, "0")) != tasks[status]
            ]
            turns = await self._client.zcard(f"{self._keys.array(job_id)}:turns")
            ended = sum(tasks[status] for status in TERMINAL) == int(row["array_size"]) and not turns
            if "walk" not in said and ended != (row["status"] in TERMINAL):
                found.append(f"array {job_id} is {row['status']} with {dict(tasks)}")
        return found

    async def _unique_keys(self) -> list[str]:
        """A key names a job that has not ended, in its present run, and says it; it is not held forever."""
        found = []
        async for key in self._client.scan_iter(f"{self._keys.unique('')}*", count=1000):
            holder, _, run = (await self._client.get(key) or b"").decode().partition(" ")
            row = await self._hash(self._keys.job(holder))
            name = key.decode().removeprefix(self._keys.unique(""))
            if row.get("unique", "").split(" ", 3)[3:] != [name] or "unique" not in row.get("hooks", ""):
                found.append(f"unique key {name} names {holder}, which does not say so")
            if row.get("status") in TERMINAL or row.get("run", "1") != run:
                found.append(f"unique key {name} is held by run {run} of {holder}: {row.get('status')}")
            if await self._client.pttl(key) <= 0:
                found.append(f"unique key {name} is held forever")
        return found

    async def _actions(self) -> list[str]:
        """An action that goes on is on the list of those; one that has ended is forgotten some day."""
        found = []
        running = {one.decode() for one in await self._client.zrange(self._keys.actions_open, 0, -1)}
        for action in [one.decode() for one in await self._client.zrange(self._keys.actions, 0, -1)]:
            said = await self._hash(self._keys.action(action))
            if not said:
                continue
            goes_on = said["state"] == "running"
            forgotten = await self._client.pttl(self._keys.action(action)) > 0
            rest = await self._client.exists(f"{self._keys.action(action)}:sources")
            if goes_on != (action in running) or goes_on == forgotten or (rest and not goes_on):
                found.append(f"action {action} is {said['state']}, against its list or its keys")
            numbers = [int(said.get(name, "0")) for name in ("matched", "done", "failed")]
            if "dry_run" not in said and numbers[0] != numbers[1] + numbers[2]:
                found.append(f"action {action} has counted {numbers}")
        return found

    async def _schedules(self) -> list[str]:
        """What fires, and what is listed, against what schedules say."""
        prefix = self._keys.schedule("")
        rows, found = {}, []
        async for key in self._client.scan_iter(f"{prefix}*", count=1000):
            name = key.decode().removeprefix(prefix)
            if name.endswith(":runs"):
                name = name.removesuffix(":runs")
                if await self._client.llen(key) > SHOWN_RUNS:
                    found.append(f"schedule {name} remembers too many runs")
            rows[name] = await self._hash(prefix + name)
        listed = {name.decode() for name in await self._client.zrange(self._keys.schedules, 0, -1)}
        due = {name.decode() for name in await self._client.zrange(self._keys.schedules_due, 0, -1)}
        waits = {name for name, row in rows.items() if "paused" not in row and ("next" in row or "queued" in row)}
        found += [f"schedule {name}: listed, or not, against its hash" for name in listed ^ rows.keys()]
        return found + [f"schedule {name}: looked at, or not, against its hash" for name in due ^ waits]

    async def _edges(self) -> list[str]:
        queued = {one.decode() for one in await self._client.lrange(self._keys.propagate, 0, -1)}
        parents = await self._hashes([f"{self._keys.job(job_id)}:parents" for job_id in self.jobs])
        found = []
        for (job_id, row), edges in zip(self.jobs.items(), parents, strict=True):
            walks = {"edges": job_id in queued, "cascade": f"cascade:{job_id}" in queued}
            found += [f"{job_id}: {problem}" for problem in edge_words(row, edges.values(), walks)]
        return found
