"""Listings: every job once, newest first, by the index that fits; cursors survive what happens in between."""

import contextlib
import itertools
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from tests.builders import after, claim, finish, jobs, new_job, submit
from tests.servers import Bench
from workron import ids
from workron.errors import InvalidRequest
from workron.models import Concurrency, Job, JobFilter, NewArray, Outcome, Reason, Status
from workron.redis.connection import Connection
from workron.store import Store
from workron.store.listing import Listing
from workron.store.reader import Reader


async def every(store: Store, where: JobFilter, *, limit: int = 7) -> list[Job]:
    found: list[Job] = []
    cursor: str | None = None
    for _ in range(200):
        page = await store.list_jobs(where, limit=limit, cursor=cursor)
        assert len(page.jobs) <= limit
        found += page.jobs
        cursor = page.next_cursor
        if cursor is None:
            return found
    raise AssertionError("the listing does not end")


async def test_all_jobs_are_listed_newest_first(store: Store) -> None:
    made = [new_job(id=job_id) for job_id in ids.new_ids(25)]
    await store.submit(made)
    assert [job.id for job in await every(store, JobFilter())] == [job.id for job in reversed(made)]


async def test_a_page_that_is_exactly_full_ends_or_goes_on_to_an_empty_one(store: Store) -> None:
    await submit(store, *(new_job() for _ in range(7)))
    assert len(await every(store, JobFilter(), limit=7)) == 7


@pytest.mark.parametrize("status", list(Status))
async def test_each_status_lists_its_jobs_once(store: Store, status: Status) -> None:
    expected = await make_all(store)
    for queue in (None, "default", "other"):
        got = await every(store, JobFilter(status=status, queue=queue), limit=2)
        wanted = {job_id for job_id, (where, name) in expected.items() if where is status and queue in (None, name)}
        assert len(got) == len(wanted)
        assert {job.id for job in got} == wanted
        assert {job.status for job in got} <= {status}


async def make_all(store: Store) -> dict[str, tuple[Status, str]]:
    """Three jobs of every status in each of two queues."""
    for queue in ("default", "other"):
        for status in (Status.DONE, Status.FAILED, Status.RUNNING):
            for _ in range(3):
                await submit(store, new_job(queue=queue, max_attempts=1))
                (got,) = await claim(store, queues=[queue])
                if status is Status.DONE:
                    await finish(store, got)
                elif status is Status.FAILED:
                    await finish(store, got, Outcome(Reason.EXIT_CODE, exit_code=1))
        for _ in range(3):
            (doomed,) = await submit(store, new_job(queue=queue))
            await submit(store, new_job(queue=queue, depends_on=after(doomed)))
            await store.cancel(doomed)
            await submit(store, new_job(queue=queue, delay_ms=600_000))
            (parent,) = await submit(store, new_job(queue=queue))
            await submit(store, new_job(queue=queue, depends_on=after(parent)))
    found = await every(store, JobFilter(), limit=100)
    assert len(found) == 48
    return {job.id: (job.status, job.queue) for job in found}


async def test_names_and_workflows_filter(store: Store) -> None:
    made = await store.submit([new_job(name="a"), new_job(name="b")], workflow="w", as_workflow=True)
    await submit(store, new_job(name="a"))
    assert len(await every(store, JobFilter(fields={"name": "a"}))) == 2
    in_workflow = await every(store, JobFilter(workflow=made.workflow), limit=1)
    assert [job.id for job in in_workflow] == list(reversed(made.ids))
    assert len(await every(store, JobFilter(workflow=made.workflow, fields={"name": "a"}))) == 1


async def test_a_scan_for_few_among_many_is_bounded_and_goes_on(store: Store) -> None:
    (rare,) = await submit(store, new_job(name="rare"))
    await store.submit([new_job(id=job_id) for job_id in ids.new_ids(1_200)])
    first = await store.list_jobs(JobFilter(fields={"name": "rare"}), limit=5)
    assert (first.jobs, first.next_cursor is not None) == ((), True)
    assert [job.id for job in await every(store, JobFilter(fields={"name": "rare"}))] == [rare]


async def test_jobs_claimed_and_submitted_between_pages_shift_nothing(store: Store) -> None:
    made = [new_job(id=job_id) for job_id in ids.new_ids(30)]
    await store.submit(made)
    page = await store.list_jobs(JobFilter(status=Status.PENDING), limit=10)
    await claim(store, limit=5)
    await submit(store, new_job(), new_job(), new_job())
    rest: list[Job] = []
    cursor = page.next_cursor
    while cursor is not None:
        more = await store.list_jobs(JobFilter(status=Status.PENDING), limit=10, cursor=cursor)
        rest += more.jobs
        cursor = more.next_cursor
    assert [job.id for job in (*page.jobs, *rest)] == [job.id for job in reversed(made[5:])]


@pytest.mark.damaged
async def test_many_jobs_that_ended_in_the_same_millisecond_are_all_listed(bench: Bench) -> None:
    store = bench.store()
    made = await submit(store, *(new_job() for _ in range(60)))
    for queue in (None, "default"):
        await bench.client.zadd(bench.keys.index(queue, "done"), dict.fromkeys(made, 5))
    for job_id in made:
        await bench.client.hset(bench.keys.job(job_id), "status", "done")
    for queue in (None, "default"):
        listed = [job.id for job in await every(store, JobFilter(status=Status.DONE, queue=queue), limit=4)]
        assert listed == sorted(made, reverse=True)


@pytest.mark.parametrize("cursor", ["", "zz", "5b5d", "7b7d", "5b312c325d", "ff"])
async def test_a_bad_cursor_is_the_callers_fault(store: Store, cursor: str) -> None:
    await submit(store, new_job(delay_ms=60_000), new_job())
    for status in (None, Status.PENDING, Status.SCHEDULED, Status.RUNNING, Status.DONE):
        try:
            await store.list_jobs(JobFilter(status=status), cursor=cursor)
        except InvalidRequest:
            continue


async def test_a_crafted_cursor_beyond_the_end_of_a_workflow_starts_at_its_end(store: Store) -> None:
    """It made the listing walk down from 2^63, a page at a time."""
    made = await store.submit([new_job(), new_job()], workflow="w", as_workflow=True)
    where = JobFilter(workflow=made.workflow)
    cursor = b"[9223372036854775807]".hex()
    page = await store.list_jobs(where, limit=5, cursor=cursor)
    assert len(page.jobs) == 2


async def test_any_number_of_jobs_is_read_in_calls_of_bounded_size(bench: Bench) -> None:
    """100,000 jobs in one pipeline did not come within the time of a call: what was stored was answered with 503."""
    store = bench.store()
    made = [new_job(id=job_id) for job_id in ids.new_ids(2_500)]
    await store.submit(made)
    sizes: list[int] = []
    show = store.scripts.job_show

    async def counted(room: int, some: Sequence[str], *, on: Connection) -> Any:
        sizes.append(len(some))
        return await show(room, some, on=on)

    store.scripts.job_show = counted  # type: ignore[method-assign, assignment]
    assert [job and job.id for job in await store.jobs([job.id for job in made])] == [job.id for job in made]
    assert max(sizes) == 100


async def test_pending_jobs_that_wait_for_a_slot_are_listed_once_with_the_others(store: Store) -> None:
    made = [
        new_job(queue=queue, concurrency=key, priority=priority)
        for queue in ("default", "other")
        for key in (None, Concurrency("a", 2), Concurrency("b", 1), Concurrency("c", 1))
        for priority in (3, 5)
        for _ in range(4)
    ]
    await submit(store, *made)
    for queue, limit in ((None, 1), (None, 5), ("other", 3), ("default", 100)):
        got = [job.id for job in await every(store, JobFilter(status=Status.PENDING, queue=queue), limit=limit)]
        assert sorted(got) == sorted(job.id for job in made if queue in (None, job.queue))


class Counted:
    """A connection on which the items of lists that were read are counted."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.items = 0
        self.commands: set[str] = set()

    async def call(self, *command: Any, repeat: bool = True) -> Any:
        reply = await self._connection.call(*command, repeat=repeat)
        self.commands.add(command[0])
        self.items += len(reply) if command[0] == "LRANGE" else 0
        return reply

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.mark.damaged
async def test_a_cursor_made_by_hand_had_a_whole_list_searched(bench: Bench) -> None:
    """It says how far its job stood from the end of the list: so far Redis searched, and the number was anybody's."""
    store = bench.store()
    await submit(store, new_job())
    await bench.client.rpush(bench.keys.pending("default", 5), *ids.new_ids(30_000))
    counted: Any = Counted(store.connection)
    reader = Reader(counted, bench.keys, store.scripts)
    cursor = orjson.dumps(["default", -5, 10**12, "0" * 22]).hex()
    await Listing(counted, bench.keys, reader).page(JobFilter(Status.PENDING, "default"), 1, cursor)
    assert "LPOS" not in counted.commands
    assert counted.items < 15_000


@pytest.mark.parametrize("number", [1e31, True, None, [1], {"a": 1}])
async def test_a_cursor_with_what_we_never_write_is_the_callers_fault(store: Store, number: Any) -> None:
    cursor = orjson.dumps(["default", -5, number, "0" * 22]).hex()
    with pytest.raises(InvalidRequest):
        await store.list_jobs(JobFilter(Status.PENDING, "default"), cursor=cursor)


@pytest.mark.parametrize("between", [0, 40, 150, 900])
async def test_a_page_goes_on_behind_its_last_job_however_many_came_since(store: Store, between: int) -> None:
    made = await submit(store, *jobs(20))
    page = await store.list_jobs(JobFilter(Status.PENDING), limit=5)
    await store.submit(jobs(between)) if between else None
    rest = await store.list_jobs(JobFilter(Status.PENDING), limit=100, cursor=page.next_cursor)
    assert [job.id for job in (*page.jobs, *rest.jobs)] == list(reversed(made))


PARTS: tuple[Any, ...] = ("", "0", "-5", "9" * 30, "x", "default", "[", "\0", -5, -1, 0, 1, 2**63, -(2**63), 0.5)


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
@pytest.mark.large
async def test_a_cursor_made_by_hand_was_answered_as_if_redis_were_broken(store: Store, parts: int) -> None:
    """What Redis itself did not take was no fault of Redis."""
    queued = new_job(concurrency=Concurrency("key", 1))
    stored = await store.submit([new_job(), queued, new_job(array=NewArray(ids.new_id(), 3))], as_workflow=True)
    filters = [JobFilter(workflow=stored.workflow), JobFilter(array=stored.ids[2])]
    filters += [JobFilter(status, queue) for status in (None, *Status) for queue in (None, "default")]
    places = itertools.product(PARTS, repeat=parts)
    for place in places if parts < 3 else itertools.islice(places, 0, None, len(PARTS) ** parts // 100):
        cursor = orjson.dumps(place).hex()
        for where in filters:
            with contextlib.suppress(InvalidRequest):
                listed = await store.list_jobs(where, cursor=cursor)
                assert where.array is None or all(job.task and job.task.array == where.array for job in listed.jobs)
