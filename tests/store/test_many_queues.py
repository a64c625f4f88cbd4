"""Many queues: what is asked and what is kept in order costs what it concerns, however many there are."""

import pytest

from tests.builders import WORKER, claim, finish, jobs, new_job, submit
from tests.bulk_actions import counts, order, work_off
from tests.counting import commands_inside, commands_of
from tests.servers import Bench
from workron import ids
from workron.models import Concurrency, JobFilter, Status
from workron.models.actions import Verb
from workron.store import Store
from workron.store.policy import Policy


async def fill(store: Store, queues: int, number: int = 1) -> list[str]:
    return await submit(store, *(new_job(queue=f"q{at:03}") for at in range(queues) for _ in range(number)))


async def drain(store: Store, queues: int) -> None:
    names = [f"q{at:03}" for at in range(queues)]
    for start in range(0, queues, 100):
        while got := await claim(store, queues=names[start : start + 100], limit=100):
            for one in got:
                await finish(store, one)


async def every(store: Store, where: JobFilter, limit: int) -> tuple[list[str], int]:
    """All jobs of a listing, and how many pages it has."""
    found: list[str] = []
    cursor: str | None = None
    for pages in range(1, 500):
        page = await store.list_jobs(where, limit=limit, cursor=cursor)
        found += [job.id for job in page.jobs]
        cursor = page.next_cursor
        if cursor is None:
            return found, pages
    raise AssertionError("the listing does not end")


@pytest.mark.large
async def test_a_status_that_no_job_has_is_listed_without_a_look_at_each_queue(store: Store) -> None:
    await fill(store, 120)
    await drain(store, 120)
    await store.maintenance.rouse()
    for status in (Status.PENDING, Status.FAILED, Status.BLOCKED, Status.RUNNING):
        with commands_of(store) as counted:
            assert (await store.list_jobs(JobFilter(status=status))).jobs == ()
        assert counted.total() <= 3, (status, counted)


async def test_the_jobs_of_all_queues_are_listed_by_their_last_change(store: Store) -> None:
    made = await fill(store, 30)
    ended = []
    for at in (7, 3, 21, 14, 2):
        (got,) = await claim(store, queues=[f"q{at:03}"])
        await finish(store, got)
        ended.append(got.id)
    listed, _ = await every(store, JobFilter(status=Status.DONE), limit=2)
    assert sorted(listed) == sorted(ended)
    done = {job.id: job.finished_at_ms or 0 for job in await store.jobs(listed) if job}
    assert [done[one] for one in listed] == sorted(done.values(), reverse=True)
    assert made[7] in listed


@pytest.mark.large
async def test_pending_jobs_of_many_queues_are_listed_page_by_page(store: Store) -> None:
    keyed = [new_job(queue=f"q{at:03}", concurrency=Concurrency("k", 1)) for at in (0, 60, 119)]
    made = await fill(store, 120, 2) + await submit(store, *keyed)
    await claim(store, queues=["q005"], limit=2)
    for limit in (1, 7, 1000):
        listed, _ = await every(store, JobFilter(status=Status.PENDING), limit)
        assert sorted(listed) == sorted(set(made) - set(made[10:12]))


@pytest.mark.damaged
async def test_a_page_looks_at_so_many_queues_in_vain_and_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workron.store.listing.SCAN_ROWS", 50)
    store = bench.store()
    await bench.client.zadd(bench.keys.pending_queues, {f"a{at:03}": 0 for at in range(120)})
    (job_id,) = await submit(store, new_job(queue="b"))
    first = await store.list_jobs(JobFilter(status=Status.PENDING), limit=5)
    assert first.jobs == ()
    listed, pages = await every(store, JobFilter(status=Status.PENDING), 5)
    assert (listed, pages) == ([job_id], 3)


async def test_queues_are_read_in_pages_by_name(store: Store) -> None:
    await fill(store, 7)
    names: list[str] = []
    after: str | None = ""
    while after is not None:
        page = await store.queue_page(3, after)
        assert len(page.queues) <= 3
        names += [queue.name for queue in page.queues]
        after = page.next_cursor
    assert names == [f"q{at:03}" for at in range(7)]
    some = await store.queue_page(2, among=["q006", "nowhere", "q001", "q002"])
    assert ([queue.name for queue in some.queues], some.next_cursor) == (["q001", "q002"], "q002")


async def test_lost_wake_ups_are_renewed_bit_by_bit_where_jobs_are_pending(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workron.redis.rounds.Round.next.__defaults__", (4,))
    store = bench.store()
    await fill(store, 10)
    assert [await store.maintenance.rouse() for _ in range(4)] == [4, 4, 2, 4]


async def test_a_queue_without_pending_jobs_is_checked_once_after_its_last_one(bench: Bench) -> None:
    store = bench.store()
    await fill(store, 3)
    (blocked,) = await submit(store, new_job(queue="q001", concurrency=Concurrency("k", 1)))
    await drain(store, 1)
    await drain(store, 3)
    assert (await store.job(blocked)).status is Status.DONE
    assert await bench.client.zcard(bench.keys.pending_queues) == 3
    await store.maintenance.rouse()
    assert await bench.client.zcard(bench.keys.pending_queues) == 0
    await submit(store, new_job(queue="q002"))
    assert await bench.client.zrange(bench.keys.pending_queues, 0, -1) == [b"q002"]


async def test_held_jobs_keep_their_queue_in_the_list_of_pending_queues(bench: Bench) -> None:
    store = bench.store()
    await submit(store, *(new_job(queue=queue, concurrency=Concurrency("k", 1)) for queue in ("a", "b")))
    (got,) = await claim(store, queues=["a"])
    await claim(store, queues=["b"])  # there is no slot: the one in the list is held again
    await store.maintenance.rouse()
    assert await bench.client.zrange(bench.keys.pending_queues, 0, -1) == [b"b"]
    await finish(store, got)
    assert len(await claim(store, queues=["b"])) == 1


async def test_ids_of_cancelled_jobs_do_not_keep_a_queue_without_pending_jobs(bench: Bench) -> None:
    store = bench.store()
    made = [new_job(id=job_id) for job_id in ids.new_ids(150)]
    await store.submit(made)
    await bench.client.rpush(bench.keys.pending("default", 5), *(job.id for job in made))  # as those of many stay
    for job in made:
        await store.cancel(job.id)
    await store.maintenance.rouse()
    assert await bench.client.zcard(bench.keys.pending_queues) == 1
    await store.maintenance.sweep()
    await store.maintenance.rouse()
    assert await bench.client.zcard(bench.keys.pending_queues) == 0


async def test_a_pass_of_the_reaper_sends_no_command_per_queue(store: Store) -> None:
    await fill(store, 120)
    await drain(store, 120)
    await store.maintenance.rouse()
    with commands_of(store) as counted:
        await store.maintenance.promote()
        await store.maintenance.rouse()
        await store.maintenance.measure()
        await store.maintenance.sweep()
    assert counted.total() <= 20, counted


@pytest.mark.damaged
async def test_a_queue_that_cannot_be_read_does_not_keep_the_jobs_of_others(bench: Bench) -> None:
    store = bench.store()
    await submit(store, new_job(queue="broken"), *jobs(3))
    for queue in ("broken", "default"):
        for got in await claim(store, queues=[queue], limit=5):
            await finish(store, got)
    for key in (bench.keys.queue("broken"), bench.keys.index("broken", "done")):
        await bench.client.set(key, "broken")
    await bench.store(Policy(lease_ms=300, pass_ms=100, retention_done_ms=0)).maintenance.sweep()
    assert (await store.list_jobs(JobFilter())).jobs == ()


async def test_an_action_on_all_queues_visits_one_index_of_each_status(bench: Bench) -> None:
    store = bench.store()
    made = await fill(store, 20)
    for job_id in made[:5]:
        await store.cancel(job_id)
    action = await order(store, Verb.DELETE, status=Status.CANCELLED)
    assert await bench.client.lrange(f"{bench.keys.action(action)}:sources", 0, -1) == [b"jobs:cancelled"]
    assert counts(await work_off(store, action)) == (5, 5, 0)
    assert await bench.client.zcard(bench.keys.index(None, "cancelled")) == 0


async def test_more_running_jobs_than_are_sorted_are_all_listed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more than 10,000 the rest was never listed."""
    monkeypatch.setattr("workron.store.listing.FEW", 10)
    store = bench.store()
    made = await fill(store, 1, 300)
    for _ in range(2):
        await claim(store, queues=["q000"], limit=150)
    for limit in (1, 7, 1000):
        listed, _ = await every(store, JobFilter(status=Status.RUNNING, queue="q000"), limit)
        assert sorted(listed) == sorted(made)


async def test_heartbeats_between_pages_hide_no_running_job(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workron.store.listing.FEW", 10)
    store = bench.store()
    made = await fill(store, 1, 300)
    held = [one for _ in range(2) for one in await claim(store, queues=["q000"], limit=150)]
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.list_jobs(JobFilter(status=Status.RUNNING), limit=100, cursor=cursor)
        found += [job.id for job in page.jobs]
        cursor = page.next_cursor
        if cursor is None:
            break
        some = held[len(found) % 3 :: 3]
        await store.attempts.heartbeat(WORKER, [(one.id, one.fence) for one in some])
    assert set(found) == set(made)


async def test_queues_without_a_parked_worker_were_searched_for_one_each(store: Store, bench: Bench) -> None:
    await fill(store, 120)
    counted = await commands_inside(bench, store.maintenance.rouse)
    assert counted["hget"] <= 120, "whether jobs are pending, one per queue"
    assert counted["hmget"] + counted["zrangebyscore"] <= 2 * counted["evalsha"]
