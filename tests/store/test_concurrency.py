"""Concurrency keys: of all jobs that name one, in whatever queues, only so many run at once."""

import pytest

from tests.builders import SUCCESS, after, claim, finish, jobs, new_job, submit
from tests.servers import Bench
from workron.models import NO_LIMIT, ClaimRequest, Concurrency, Job, NewJob, QueueChange, Result, Status
from workron.store import Store

ONE = Concurrency("customer-7", 1)
TWO = Concurrency("customer-7", 2)
QUEUES = ["default", "other"]


async def parked(store: Store, worker: str, *, queues: list[str] | None = None, limit: int = 5) -> None:
    request = ClaimRequest(worker, queues or ["default"], limit, f"{worker}:1", park_ms=5_000, inbox=f"in-{worker}")
    assert (await store.attempts.claim(request)).parked


async def woken(bench: Bench, worker: str) -> bool:
    return bool(await bench.client.llen(bench.keys.inbox(f"in-{worker}")))


def ids(many: list[NewJob]) -> list[str]:
    return [job.id for job in many]


async def started(store: Store, *, limit: int = 10, queues: list[str] | None = None) -> list[str]:
    return [one.id for one in await claim(store, limit=limit, queues=queues or QUEUES)]


async def test_a_concurrency_key_limits_running_jobs_across_all_queues(store: Store) -> None:
    await submit(store, *jobs(3, concurrency=TWO), *jobs(3, concurrency=TWO, queue="other"))
    claims = await claim(store, queues=QUEUES, limit=10)
    assert [one.queue for one in claims] == ["default", "default"]
    assert await started(store) == []
    await finish(store, claims[0])
    assert len(await started(store, queues=["other"])) == 1
    assert await started(store) == []


async def test_two_keys_do_not_hold_up_each_other(store: Store) -> None:
    await submit(store, *jobs(2, concurrency=ONE), *jobs(2, concurrency=Concurrency("customer-8", 1)))
    assert len(await started(store)) == 2


async def test_held_jobs_start_in_their_order_and_higher_priorities_first(store: Store) -> None:
    usual, urgent = jobs(3, concurrency=ONE), jobs(2, concurrency=ONE, priority=9)
    await submit(store, new_job(concurrency=ONE))
    [running] = await claim(store)
    await submit(store, *usual, *urgent)
    order = []
    while True:
        await finish(store, running)
        claims = await claim(store, limit=5)
        if not claims:
            break
        [running] = claims
        order.append(running.id)
    assert order == ids(urgent) + ids(usual)


async def test_slots_that_got_free_one_by_one_are_taken_in_the_order_of_the_line(store: Store) -> None:
    three = Concurrency("customer-7", 3)
    await submit(store, *jobs(3, concurrency=three))
    running = await claim(store, limit=3)
    held = jobs(4, concurrency=three)
    await submit(store, *held, *jobs(2))
    for one in running:
        await finish(store, one)
    order = [one for _ in range(5) for one in await started(store, limit=1)]
    assert order[:3] == ids(held)[:3]
    assert len(order) == 5
    assert ids(held)[3] not in order


async def test_an_urgent_job_overtakes_admitted_jobs_that_have_not_started(store: Store) -> None:
    await store.change_queue("default", QueueChange(paused=True))
    await submit(store, *jobs(2, concurrency=ONE))
    urgent = new_job(concurrency=ONE, priority=9)
    await submit(store, urgent)
    await store.change_queue("default", QueueChange(paused=False))
    assert await started(store) == [urgent.id]


async def test_jobs_held_back_do_not_hold_up_others_of_their_queue(store: Store) -> None:
    await submit(store, *jobs(50, concurrency=ONE))
    plain = jobs(3)
    await submit(store, *plain)
    assert (await started(store))[1:] == ids(plain)


async def test_a_waiting_job_starts_in_the_very_call_that_frees_its_slot(store: Store) -> None:
    await submit(store, *jobs(2, concurrency=ONE))
    [first] = await claim(store, limit=2)
    request = ClaimRequest("w1", ["default"], 2, "same:1")
    exchanged = await store.attempts.finish([Result(first.id, first.fence, SUCCESS)], worker="w1", request=request)
    assert exchanged.claimed is not None
    assert len(exchanged.claimed.claims) == 1


async def test_a_parked_worker_is_woken_when_a_slot_gets_free(store: Store, bench: Bench) -> None:
    await submit(store, new_job(concurrency=ONE), new_job(concurrency=ONE, queue="other"))
    [first] = await claim(store)
    await parked(store, "w2", queues=["other"])
    assert not await woken(bench, "w2")
    await finish(store, first)
    assert await woken(bench, "w2")
    assert len(await started(store, queues=["other"])) == 1


async def test_a_submission_wakes_no_worker_for_a_job_without_a_slot(store: Store, bench: Bench) -> None:
    await submit(store, new_job(concurrency=ONE))
    await claim(store)
    await parked(store, "w2")
    await submit(store, new_job(concurrency=ONE))
    assert not await woken(bench, "w2")
    await submit(store, new_job())
    assert await woken(bench, "w2")


async def test_a_paused_queue_keeps_no_slot_from_others(store: Store) -> None:
    await store.change_queue("default", QueueChange(paused=True))
    await submit(store, *jobs(3, concurrency=ONE), *jobs(2, concurrency=ONE, queue="other"))
    [first] = await claim(store, queues=QUEUES, limit=5)
    assert first.queue == "other"
    await store.change_queue("default", QueueChange(paused=False))
    assert await started(store) == []
    await finish(store, first)
    assert len(await started(store)) == 1


async def test_a_job_without_a_slot_is_no_start_for_the_limit_of_its_queue(store: Store) -> None:
    await store.change_queue("default", QueueChange(max_running=2))
    await submit(store, *jobs(2, concurrency=ONE, queue="other"), *jobs(2, concurrency=ONE), *jobs(2))
    assert len(await started(store, queues=["other", "default"])) == 3
    await store.change_queue("default", QueueChange(max_running=NO_LIMIT))


async def test_raising_the_limit_starts_waiting_jobs_and_wakes_a_worker(store: Store, bench: Bench) -> None:
    await submit(store, *jobs(5, concurrency=ONE))
    await claim(store)
    await parked(store, "w2")
    await submit(store, new_job(concurrency=Concurrency("customer-7", 4), delay_ms=60_000))
    assert await woken(bench, "w2")
    assert len(await started(store)) == 3


async def test_a_lowered_limit_applies_to_waiting_jobs(store: Store) -> None:
    four = Concurrency("customer-7", 4)
    await submit(store, *jobs(8, concurrency=four))
    running = await claim(store, limit=3)
    await submit(store, new_job(concurrency=TWO))
    assert await started(store) == []
    await finish(store, running.pop())
    assert await started(store) == []
    await finish(store, running.pop())
    assert len(await started(store)) == 1


async def test_the_limit_is_kept_while_a_job_of_the_key_has_not_ended(store: Store) -> None:
    waiting = jobs(3, concurrency=Concurrency("customer-7", 3), depends_on=after((await submit(store, new_job()))[0]))
    await submit(store, *waiting)
    await submit(store, new_job(queue="other", concurrency=ONE))
    await finish(store, (await claim(store, queues=["other"]))[0])
    await finish(store, (await claim(store))[0])
    assert len(await started(store)) == 1


async def test_the_keys_of_a_key_are_gone_with_its_last_job(store: Store, bench: Bench) -> None:
    await submit(store, *jobs(3, concurrency=TWO))
    while claims := await claim(store, limit=5):
        for one in claims:
            await finish(store, one)
    assert [key async for key in bench.client.scan_iter(f"{bench.keys.concurrency('')}*")] == []
    assert await bench.client.zcard(bench.keys.due) == 0


def place(job: Job) -> tuple[Status, Concurrency | None]:
    return job.status, job.concurrency


async def test_a_job_tells_its_key_and_limit(store: Store) -> None:
    with_key, without = new_job(concurrency=TWO), new_job()
    await submit(store, with_key, without)
    assert place(await store.job(with_key.id)) == (Status.PENDING, TWO)
    assert place(await store.job(without.id)) == (Status.PENDING, None)


@pytest.mark.damaged
async def test_a_slot_that_a_waiting_job_had_by_damage_was_never_free_again(store: Store, bench: Bench) -> None:
    first, second, third = jobs(3, concurrency=ONE)
    await submit(store, first, second)
    await bench.client.zadd(bench.keys.concurrency(ONE.key) + ":running", {second.id: 1})
    assert await started(store) == []
    await submit(store, third)
    assert await started(store) == [first.id]


async def test_a_job_that_gets_a_slot_after_it_has_waited_stands_in_its_list_once(store: Store, bench: Bench) -> None:
    """Should it be retried, it would have its old place."""
    first, second, third = jobs(3, concurrency=ONE)
    await submit(store, first, second, third)
    (running,) = await claim(store)
    await finish(store, running)
    assert await bench.client.lrange(bench.keys.pending("default", 5), 0, -1) == [second.id.encode()]


async def test_the_list_of_a_queue_has_as_many_jobs_of_a_key_as_slots_are_free(store: Store, bench: Bench) -> None:
    """With each further job, one more would be popped for nothing."""
    for job in jobs(6, concurrency=TWO):
        await submit(store, job)
    assert await bench.client.llen(bench.keys.pending("default", 5)) == 2
