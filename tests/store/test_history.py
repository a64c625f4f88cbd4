"""Redis that is found in an older state than before is reported, by whoever remembers more."""

import pytest

from tests.builders import claim, finish, new_job, submit
from tests.servers import Bench
from workron.models import Status


async def test_a_reaper_that_remembers_more_passes_than_redis_reports_a_rollback(bench: Bench) -> None:
    reaper, other = bench.store(), bench.store()
    for _ in range(5):
        assert (await reaper.maintenance.reap()).undone == 0
    assert (await other.health()).rollbacks == 0
    await bench.client.hset(bench.keys.meta, "passes", "2")  # what a server says that was restored from an older state
    assert (await reaper.maintenance.reap()).undone == 3
    health = await other.health()
    assert (health.rollbacks, health.rolled_back_at_ms is None) == (1, False)
    assert await bench.client.hget(bench.keys.meta, "rolled_back") == b"passes 5 2"
    for one in (reaper, other):
        assert (await one.maintenance.reap()).undone == 0
    assert (await other.health()).rollbacks == 1


async def test_a_worker_that_has_seen_a_higher_fence_than_redis_reports_a_rollback(bench: Bench) -> None:
    store = bench.store()
    await submit(store, new_job(), new_job())
    (first,) = await claim(store)
    await bench.client.hset(bench.keys.meta, "fence", str(first.fence - 1))
    assert await claim(store, queues=["other"]) == []
    assert (await store.health()).rollbacks == 1
    (second,) = await claim(store)
    assert second.fence > first.fence
    assert (await store.health()).rollbacks == 1
    for one in (first, second):
        assert (await finish(store, one)).status is Status.DONE


@pytest.mark.parametrize("passes", [1, 4])
async def test_another_reaper_and_a_first_pass_report_nothing(bench: Bench, passes: int) -> None:
    for _ in range(2):
        store = bench.store()
        for _ in range(passes):
            assert (await store.maintenance.reap()).undone == 0
    assert (await store.health()).rollbacks == 0


async def test_one_rollback_that_several_notice_is_counted_once(bench: Bench) -> None:
    reapers = [bench.store() for _ in range(3)]
    for reaper in reapers:
        await reaper.maintenance.reap()
    await submit(reapers[0], new_job(), new_job())
    (claimed,) = await claim(reapers[0])
    await bench.client.hset(bench.keys.meta, mapping={"passes": "0", "fence": str(claimed.fence - 1)})
    for reaper in reversed(reapers):
        await reaper.maintenance.reap()
    await claim(reapers[0])
    assert (await reapers[0].health()).rollbacks == 1
