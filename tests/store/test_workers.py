"""Workers as the scheduler sees them: how they are listed, lost and forgotten, and how they hear of a drain."""

import asyncio
import time
from dataclasses import replace

import orjson
import pytest

from tests.builders import WORKER, claim, finish, new_job, submit
from tests.conftest import WaitUntil
from tests.servers import QUICK, Bench
from workron.errors import NotFound
from workron.models.workers import Drain, WorkerStatus
from workron.store import Store
from workron.store.policy import Policy

HOUR_MS = 3_600_000


async def test_a_worker_is_shown_as_it_described_itself(store: Store) -> None:
    info = replace(WORKER, jobs=("one", "two"), running=2, started_at_ms=int(time.time() * 1000))
    await store.attempts.heartbeat(info, [])
    (worker,) = (await store.workers()).workers
    assert (worker.info, worker.status) == (info, WorkerStatus.ACTIVE)
    assert await store.worker("w1") == worker


async def test_a_worker_that_falls_silent_is_lost_after_its_lease_and_back_with_its_next_heartbeat(
    bench: Bench, wait_until: WaitUntil
) -> None:
    store = bench.store(QUICK)
    await store.attempts.heartbeat(WORKER, [])
    before = await store.worker("w1")

    async def lost() -> bool:
        return (await store.worker("w1")).status is WorkerStatus.LOST

    await wait_until(lost)
    assert (await store.worker("w1")).last_heartbeat_at_ms == before.last_heartbeat_at_ms
    await store.attempts.heartbeat(WORKER, [])
    assert (await store.worker("w1")).status is WorkerStatus.ACTIVE


async def test_the_workers_own_lease_decides_when_it_is_lost(bench: Bench) -> None:
    await bench.store(Policy(lease_ms=60_000)).attempts.heartbeat(WORKER, [])
    await asyncio.sleep(0.05)
    assert (await bench.store(Policy(lease_ms=10)).worker("w1")).status is WorkerStatus.ACTIVE


async def test_a_lost_worker_is_forgotten_after_an_hour(bench: Bench) -> None:
    store = bench.store()
    await store.attempts.heartbeat(WORKER, [])
    assert HOUR_MS - 10_000 < await bench.client.pttl(bench.keys.worker("w1")) <= HOUR_MS
    (_, last_ms), *_ = await bench.client.zrange(bench.keys.workers, 0, -1, withscores=True)
    await bench.client.zadd(bench.keys.workers, {"w1": last_ms - HOUR_MS - 1})
    await store.maintenance.reap()
    assert (await store.workers()).workers == ()
    with pytest.raises(NotFound):
        await store.worker("w1")


async def test_of_very_many_lost_workers_the_oldest_are_forgotten_if_their_own_lease_is_over(bench: Bench) -> None:
    store = bench.store()
    began_ms = int(time.time() * 1000) - HOUR_MS // 2
    await bench.client.zadd(bench.keys.workers, {f"w{number}": began_ms + number for number in range(1_003)})
    for name, lease_ms in (("w0", HOUR_MS), ("w1", 1_000)):
        await bench.client.hset(bench.keys.worker(name), "lease_ms", lease_ms)
        await bench.client.pexpire(bench.keys.worker(name), HOUR_MS)
    await store.maintenance.reap()
    assert await bench.client.zrange(bench.keys.workers, 0, 1) == [b"w0", b"w3"]
    assert not await bench.client.exists(bench.keys.worker("w1"))
    await store.maintenance.reap()
    assert await bench.client.zcard(bench.keys.workers) == 1_001
    await bench.client.zrem(bench.keys.workers, "w0")
    await store.maintenance.reap()
    assert await bench.client.zcard(bench.keys.workers) == 1_000


async def test_a_worker_of_a_later_version_that_says_more_is_shown(bench: Bench) -> None:
    store = bench.store()
    await store.attempts.heartbeat(WORKER, [])
    about = orjson.loads(await bench.client.hget(bench.keys.worker("w1"), "about")) | {"mood": "fine"}
    await bench.client.hset(bench.keys.worker("w1"), "about", orjson.dumps(about))
    shown = (await store.worker("w1")).info
    assert shown == replace(WORKER, started_at_ms=shown.started_at_ms)


async def test_a_worker_whose_clock_is_wrong_is_shown_to_have_started_with_its_first_heartbeat(store: Store) -> None:
    for wrong_by_ms in (-HOUR_MS, HOUR_MS):
        now_ms = int(time.time() * 1000)
        info = replace(WORKER, id=f"wrong{wrong_by_ms}", started_at_ms=now_ms + wrong_by_ms)
        for _ in range(2):
            await store.attempts.heartbeat(info, [])
        assert abs((await store.worker(info.id)).info.started_at_ms - now_ms) < 30_000


@pytest.mark.parametrize("about", ["{", "[]", '{"id": "w0"}'])
async def test_a_damaged_description_hides_no_other_worker(bench: Bench, about: str) -> None:
    store = bench.store()
    await store.attempts.heartbeat(WORKER, [])
    await store.attempts.heartbeat(replace(WORKER, id="w0"), [])
    await bench.client.hset(bench.keys.worker("w0"), "about", about)
    assert [worker.info.id for worker in (await store.workers()).workers] == ["w1"]
    with pytest.raises(NotFound):
        await store.worker("w0")


async def test_of_very_many_workers_the_last_seen_ones_are_listed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workron.store.reader.MOST_WORKERS", 3)
    store = bench.store()
    for name in ("w1", "w5", "w3", "w2", "w4"):
        await store.attempts.heartbeat(replace(WORKER, id=name), [])
        await asyncio.sleep(0.002)
    assert [worker.info.id for worker in (await store.workers()).workers] == ["w2", "w3", "w4"]


async def test_a_worker_that_has_left_is_not_shown_any_more(store: Store) -> None:
    await store.attempts.heartbeat(WORKER, [])
    assert await store.attempts.leave("w1")
    assert not await store.attempts.leave("w1")
    assert (await store.workers()).workers == ()


async def test_what_a_worker_has_claimed_is_no_worker(store: Store) -> None:
    await submit(store, new_job())
    await claim(store)
    with pytest.raises(NotFound):
        await store.worker("w1:claim")
    with pytest.raises(NotFound):
        await store.attempts.drain("w1:claim", Drain())


async def test_workers_come_in_pages_by_name(store: Store) -> None:
    names = [f"w{n}" for n in range(7)]
    for name in reversed(names):
        await store.attempts.heartbeat(replace(WORKER, id=name), [])
    found, cursor = [], None
    while True:
        page = await store.workers(limit=3, cursor=cursor)
        found.append([worker.info.id for worker in page.workers])
        if (cursor := page.next_cursor) is None:
            break
    assert found == [names[:3], names[3:6], names[6:]]


@pytest.mark.parametrize("wish", [Drain(), Drain(0), Drain(7_200_000)])
async def test_every_heartbeat_is_answered_with_the_drain_request_until_the_worker_has_left(
    store: Store, wish: Drain
) -> None:
    assert (await store.attempts.heartbeat(WORKER, [])).drain is None
    await store.attempts.drain("w1", wish)
    assert (await store.worker("w1")).status is WorkerStatus.DRAINING
    for _ in range(2):
        assert (await store.attempts.heartbeat(WORKER, [])).drain == wish
    await store.attempts.leave("w1")
    assert (await store.attempts.heartbeat(WORKER, [])).drain is None


async def test_a_drain_makes_the_worker_send_a_heartbeat_at_once(bench: Bench) -> None:
    store = bench.store()
    await store.attempts.heartbeat(WORKER, [])
    cancels = store.attempts.cancels()
    hearing = asyncio.ensure_future(anext(cancels))
    while not hearing.done():
        await bench.store().attempts.drain("w1", Drain())
        await asyncio.wait([hearing], timeout=0.05)  # until it has subscribed
    assert hearing.result() == ("w1", "", 0)
    await cancels.aclose()  # type: ignore[attr-defined]


async def test_an_unknown_worker_cannot_be_drained(store: Store) -> None:
    with pytest.raises(NotFound, match="no such worker: w9"):
        await store.attempts.drain("w9", Drain())


async def test_jobs_that_have_not_ended_are_counted_in_the_queues_asked_for(store: Store) -> None:
    waiting, later, elsewhere = new_job(), new_job(delay_ms=60_000), new_job(queue="other")
    await submit(store, waiting, later, elsewhere)
    assert await store.attempts.unfinished(["default"]) == 2
    assert await store.attempts.unfinished(["default", "other", "none"]) == 3
    (got,) = await claim(store)
    assert await store.attempts.unfinished(["default"]) == 2
    await finish(store, got)
    assert await store.attempts.unfinished(["default"]) == 1


async def test_of_many_workers_that_are_lost_the_last_ones_are_kept_and_none_that_lives(bench: Bench) -> None:
    store, client, workers = bench.store(), bench.client, bench.keys.workers
    await store.attempts.describe(replace(WORKER, id="patient"), ttl_ms=3_600_000)
    now_ms = int((await client.zscore(workers, "patient")) or 0)
    await client.zadd(workers, {"patient": now_ms - 600_000})  # the oldest, but it has an hour
    await client.zadd(workers, {f"lost-{number:04}": now_ms - 500_000 + number for number in range(1_150)})
    await client.hset(bench.keys.worker("lost-0000"), "lease_ms", "300")
    await store.attempts.heartbeat(WORKER, [])
    for _ in range(3):
        await store.maintenance.reap()
    left = {name.decode() for name in await client.zrange(workers, 0, -1)}
    assert {"patient", WORKER.id, "lost-1149"} <= left
    assert "lost-0000" not in left
    assert len(left) == 1_000 + 2  # beside those that are not lost
    assert not await client.exists(bench.keys.worker("lost-0000"))


async def test_workers_that_are_lost_are_shown_as_long_as_they_are_few_however_many_others_live(bench: Bench) -> None:
    store, client, workers = bench.store(), bench.client, bench.keys.workers
    await store.attempts.heartbeat(WORKER, [])
    now_ms = int((await client.zscore(workers, WORKER.id)) or 0)
    await client.zadd(workers, {f"lost-{number}": now_ms - 500_000 for number in range(20)})
    await client.zadd(workers, {f"alive-{number}": now_ms + 600_000 for number in range(1_000)})
    await store.maintenance.reap()
    assert await client.zcard(workers) == 1_021
