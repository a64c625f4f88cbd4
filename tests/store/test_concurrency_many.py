"""Concurrency keys with many jobs, many queues, submissions of many chunks: each call does a bounded part of it."""

import asyncio
from typing import Any

import pytest

from tests.builders import SUCCESS, claim, finish, finish_all, jobs, new_job, submit
from tests.counting import commands_inside
from tests.servers import Bench
from workron.errors import StoreUnavailable
from workron.models import Claim, ClaimRequest, Concurrency, NewJob, Status
from workron.redis import formats
from workron.store import Store

ONE = Concurrency("k", 1)
MANY = Concurrency("k", 1_000)


async def all_of(store: Store, *queues: str, most_calls: int) -> list[Claim]:
    """All that can be claimed; so many calls have to be enough."""
    found: list[Claim] = []
    for _ in range(most_calls):
        claims = await claim(store, queues=list(queues), limit=150)
        found += claims
    assert await claim(store, queues=list(queues), limit=150) == []
    return found


async def not_admitted(store: Store, many: list[NewJob], monkeypatch: pytest.MonkeyPatch) -> None:
    async def dies(batch: str) -> None: ...

    with monkeypatch.context() as patch:
        patch.setattr(store.submitter, "admit_quietly", dies)
        await store.submit(many)


async def test_of_many_that_may_start_at_once_a_part_is_admitted_in_each_call(store: Store, bench: Bench) -> None:
    running = await submit_and_start(store, new_job(concurrency=ONE))
    many = jobs(450, concurrency=ONE)
    await submit(store, *many)
    await submit(store, new_job(concurrency=MANY, queue="other"))
    listed = await bench.client.lrange(bench.keys.pending("default", 5), 0, -1)
    assert [one.decode() for one in listed] == [job.id for job in many[:200]]
    assert len(await all_of(store, "default", most_calls=3)) == 450
    await finish(store, running)


async def submit_and_start(store: Store, job: NewJob) -> Claim:
    await submit(store, job)
    [running] = await claim(store, queues=[job.queue])
    return running


async def test_what_is_too_much_for_one_call_is_gone_on_with(store: Store, bench: Bench) -> None:
    queues = ["a", "b", "c", "d"]
    await submit_and_start(store, new_job(concurrency=ONE))
    for queue in queues:
        await submit(store, *jobs(180, concurrency=ONE, queue=queue))
    await submit(store, new_job(concurrency=MANY))
    listed = [await bench.client.llen(bench.keys.pending(queue, 5)) for queue in queues]
    assert sum(listed) == 500
    await store.maintenance.promote()
    listed = [await bench.client.llen(bench.keys.pending(queue, 5)) for queue in queues]
    assert listed == [180] * 4


async def test_a_slot_is_offered_to_all_of_many_queues(store: Store, bench: Bench) -> None:
    queues = [f"q{number}" for number in range(150)]
    running = await submit_and_start(store, new_job(concurrency=ONE))
    await submit(store, *(new_job(concurrency=ONE, queue=queue) for queue in queues))
    await finish(store, running)
    for _ in range(3):  # 64 in one call
        await store.maintenance.promote()
    listed = [await bench.client.llen(bench.keys.pending(queue, 5)) for queue in queues]
    assert listed == [1] * 150
    [running] = await claim(store, queues=["q149"])
    assert await claim(store, queues=queues[:10], limit=20) == []
    await finish(store, running)


async def test_many_keys_in_one_submission_are_admitted_and_a_worker_is_woken_to_go_on(store: Store) -> None:
    many = [new_job(concurrency=Concurrency(f"k{number}", 1)) for number in range(190)]
    await submit(store, *many)
    assert len(await all_of(store, "default", most_calls=4)) == 190


async def test_a_worker_is_woken_for_a_key_that_no_call_had_time_for(store: Store, bench: Bench) -> None:
    keys = [Concurrency(f"k{number}", 1) for number in range(140)]
    running = [await submit_and_start(store, new_job(concurrency=key)) for key in keys]
    many = [new_job(concurrency=key, queue=f"q{number}") for number, key in enumerate(keys)]
    await submit(store, *many)
    for job in many:
        request = ClaimRequest(job.queue, [job.queue], 5, "w:1", park_ms=5_000, inbox=f"in-{job.queue}")
        assert (await store.attempts.claim(request)).parked
    await finish_all(store, running, [SUCCESS] * len(running))
    for job in many:
        assert await bench.client.llen(bench.keys.inbox(f"in-{job.queue}")) == 1
    for job in many:
        assert len(await claim(store, worker=job.queue, queues=[job.queue])) == 1


async def test_most_keys_of_a_large_submission_were_left_to_the_reaper(store: Store, bench: Bench) -> None:
    await store.submit([new_job(concurrency=Concurrency(f"k{number}", 1)) for number in range(450)])
    assert await bench.client.zcard(bench.keys.due) == 0
    assert await bench.client.llen(bench.keys.pending("default", 5)) == 450


async def test_a_pass_read_and_wrote_the_keys_that_it_had_no_time_for(store: Store, bench: Bench) -> None:
    await submit(store, *(new_job(concurrency=Concurrency(f"k{number}", 1)) for number in range(100)))
    await submit(store, *(new_job(concurrency=Concurrency(f"k{number}", 1)) for number in range(100, 190)))
    await bench.client.zadd(bench.keys.due, {formats.timer("refill", f"k{number}"): 1 for number in range(190)})

    async def a_pass() -> None:
        assert (await store.scripts.maintain_promote(200, []))[1] == 1

    assert (await commands_inside(bench, a_pass))["hmget"] <= 105, "one per key that is visited"
    left = await bench.client.zrange(bench.keys.due, 0, -1, withscores=True)
    assert len(left) == 90
    assert {score for _, score in left} == {1}
    assert await store.maintenance.promote() is None


async def test_a_claim_that_leaves_only_held_jobs_wakes_no_worker(store: Store, bench: Bench) -> None:
    await submit_and_start(store, new_job(concurrency=ONE))
    await submit(store, *jobs(3, concurrency=ONE), new_job(queue="other"))
    request = ClaimRequest("w2", ["default"], 5, "w2:1", park_ms=5_000, inbox="in-w2")
    assert (await store.attempts.claim(request)).parked
    assert len(await claim(store, queues=["other", "default"])) == 1
    await store.maintenance.promote()
    assert not await bench.client.exists(bench.keys.inbox("in-w2"))


async def test_jobs_of_other_keys_and_none_start_while_hundreds_wait_in_front_of_them(store: Store) -> None:
    await submit(store, *jobs(600, concurrency=ONE, priority=9))
    await submit(store, new_job(), new_job(concurrency=Concurrency("other", 1)))
    assert len(await claim(store, limit=5)) == 3


async def test_a_submission_in_chunks_that_fails_leaves_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, wait_until: Any
) -> None:
    store = bench.store()
    stage = store.scripts.submission_stage

    async def failing(**args: Any) -> Any:
        if args["chunk"] == 2:
            raise StoreUnavailable("away")
        return await stage(**args)

    monkeypatch.setattr(store.scripts, "submission_stage", failing)
    with pytest.raises(StoreUnavailable):
        await store.submit(jobs(700, concurrency=ONE))

    async def nothing_is_left() -> bool:
        return not [key async for key in bench.client.scan_iter(f"{bench.keys.prefix}[cjq]*")]

    await wait_until(nothing_is_left)


async def test_a_job_that_is_cancelled_before_it_was_admitted_never_had_a_place(
    store: Store, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = jobs(450, concurrency=ONE)
    await not_admitted(store, many, monkeypatch)
    await store.cancel(many[0].id)
    await store.cancel(many[449].id)
    assert not await bench.client.exists(bench.keys.concurrency("k"))
    await store.maintenance.tidy()
    assert [one.id for one in await claim(store, limit=5)] == [many[1].id]
    await store.retry(many[0].id)


async def test_a_submission_that_is_admitted_late_does_not_bring_back_its_limit(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await not_admitted(store, jobs(450, concurrency=Concurrency("k", 5)), monkeypatch)
    await asyncio.sleep(0.002)
    await submit(store, new_job(concurrency=ONE, queue="other"))
    await store.maintenance.tidy()
    assert len(await claim(store, queues=["default", "other"], limit=10)) == 1


@pytest.mark.damaged
async def test_a_job_without_a_hash_holds_up_no_job_behind_it(store: Store, bench: Bench) -> None:
    first, second = jobs(2, concurrency=ONE)
    await submit(store, first, second)
    await bench.client.unlink(bench.keys.job(first.id))
    await submit(store, new_job(concurrency=ONE))
    await submit(store, new_job(concurrency=ONE))
    assert [one.id for one in await claim(store)] == [second.id]
    assert (await store.job(second.id)).status is Status.RUNNING
