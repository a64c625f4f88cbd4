"""What is said of a job: one true sentence for each way in which it can be where it is."""

from dataclasses import replace

import pytest

from tests.array_jobs import array_job
from tests.builders import WORKER, after, claim, finish, jobs, new_job, submit
from tests.expiring import SOON, ended
from tests.servers import Bench
from workron.errors import Conflict
from workron.models import Concurrency, Outcome, QueueChange, Rate, Reason
from workron.store import Store
from workron.store.policy import Policy

BAD = Outcome(Reason.EXIT_CODE, exit_code=3)


async def said(store: Store, job_id: str) -> str:
    return (await store.explain(job_id)).sentence


async def serve(store: Store, worker: str = "w1", slots: int = 2) -> None:
    await store.attempts.heartbeat(replace(WORKER, id=worker, slots=slots), [])


async def test_a_blocked_job_names_what_it_waits_for(store: Store) -> None:
    parents = [new_job() for _ in range(5)]
    child = new_job(depends_on=after(*(parent.id for parent in parents)))
    await submit(store, *parents, child)
    [first] = await claim(store)
    await finish(store, first)
    [second] = await claim(store)
    explained = await store.explain(child.id)
    start = f"It waits for 4 of 5 jobs to end: {second.id} (running), {parents[2].id} (pending), "
    assert explained.sentence.startswith(start)
    assert explained.sentence.endswith(" and 1 more.")
    assert explained.facts["open"] == 4
    assert [one["job"] for one in explained.facts["waits_for"]] == [parent.id for parent in parents[1:]]


async def test_a_pending_job_knows_its_position_and_that_no_worker_serves_it(store: Store) -> None:
    urgent = new_job(priority=9)
    ids = await submit(store, *jobs(3), urgent)
    sentence = await said(store, ids[2])
    assert sentence.startswith("3 jobs are ahead of it in queue default, which no worker serves now; start one:")
    assert (await said(store, urgent.id)).startswith("It is the next one in queue default")
    await serve(store)
    assert (await said(store, ids[0])).endswith("in queue default, which 1 worker serves, 1 of them with free slots.")


async def test_the_reason_that_holds_up_a_queue_is_explained(store: Store) -> None:
    ids = await submit(store, *jobs(3))
    await serve(store)
    await store.change_queue("default", QueueChange(paused=True))
    assert "which is paused; workron queues resume default" in await said(store, ids[0])
    await store.change_queue("default", QueueChange(paused=False, max_running=1))
    await claim(store)
    explained = await store.explain(ids[1])
    assert "of which as many jobs run as may: 1" in explained.sentence
    assert explained.facts["held_by"] == "max_running"


async def test_a_job_without_a_slot_names_the_jobs_with_one_and_knows_its_position(store: Store) -> None:
    two = Concurrency("customer-7", 2)
    ids = await submit(store, *jobs(5, concurrency=two))
    assert "4 jobs are ahead of it in queue default, which no worker serves" in await said(store, ids[4])
    await serve(store)
    await claim(store, limit=2)
    run = f"2 of 2 slots are taken: {ids[0]}, {ids[1]}"
    held = f"It is held by the concurrency key customer-7, of which {run}; it is "
    assert await said(store, ids[2]) == f"{held}the next one in line in queue default."
    explained = await store.explain(ids[4])
    assert explained.sentence == f"{held}number 3 in line in queue default."
    assert explained.facts["held_by"] == "concurrency"
    assert explained.facts["ahead"] == 2
    await store.change_queue("default", QueueChange(paused=True))
    assert "which is paused" in await said(store, ids[4])


async def test_a_rate_tells_when_the_next_start_is_allowed(store: Store) -> None:
    await store.change_queue("default", QueueChange(rate=Rate(1, 60_000)))
    ids = await submit(store, *jobs(2))
    await claim(store)
    explained = await store.explain(ids[1])
    assert "whose rate allows the next start in " in explained.sentence
    assert 50 < explained.facts["starts_in"] <= 60


async def test_a_scheduled_job_tells_when_and_that_no_reaper_is_at_work(store: Store) -> None:
    (job_id,) = await submit(store, new_job(delay_ms=3_600_000))
    sentence = await said(store, job_id)
    assert sentence.startswith(
        ("Its time has not come: it may start in 1h", "Its time has not come: it may start in 3599s")
    )
    assert sentence.endswith("No reaper is at work: start one with workron reaper.")
    await store.maintenance.reap()
    assert "reaper" not in await said(store, job_id)


async def test_a_job_between_two_attempts_tells_what_failed(store: Store) -> None:
    (job_id,) = await submit(store, new_job(max_attempts=4))
    [one] = await claim(store)
    await finish(store, one, BAD)
    assert (await said(store, job_id)).startswith("Attempt 1 of 4 ended by exit code 3; the next one may start ")


async def test_a_running_job_tells_where_and_for_how_long_its_lease_holds(bench: Bench) -> None:
    store = bench.store(Policy(lease_ms=30_000))
    (job_id,) = await submit(store, new_job())
    await claim(store)
    explained = await store.explain(job_id)
    assert explained.sentence.startswith("Attempt 1 of 3 runs on worker w1 since ")
    assert 0 < explained.facts["lease_left"] <= 30
    await store.cancel(job_id)
    assert "it is being cancelled" in await said(store, job_id)
    await bench.client.delete(bench.keys.heartbeat(job_id))
    await bench.client.zadd(bench.keys.leases, {job_id: 1})
    assert "that worker is silent: the reaper takes the job back" in await said(store, job_id)


async def test_a_skipped_job_names_the_first_cause(store: Store) -> None:
    root = new_job(max_attempts=1)
    middle = new_job(depends_on=after(root.id))
    last = new_job(depends_on=after(middle.id))
    await submit(store, root, middle, last)
    [one] = await claim(store)
    await finish(store, one, BAD)
    explained = await store.explain(last.id)
    assert explained.sentence == (
        f"It was skipped because job {root.id} ended failed by exit code 3, with 1 job in between; "
        f"workron retry {root.id} has it wait again."
    )
    assert explained.facts["caused_by"] == [middle.id, root.id]


@pytest.mark.damaged
async def test_a_skipped_job_whose_parent_is_gone_is_not_sent_there(bench: Bench, store: Store) -> None:
    root = new_job(max_attempts=1)
    middle = new_job(depends_on=after(root.id))
    last = new_job(depends_on=after(middle.id))
    await submit(store, root, middle, last)
    [one] = await claim(store)
    await finish(store, one, BAD)
    await bench.client.delete(bench.keys.job(root.id))
    with pytest.raises(Conflict, match=f"waits for {root.id}, which is no longer stored: submit the job again"):
        await store.retry(middle.id)
    with pytest.raises(Conflict, match=f"waits for {middle.id}, retry that one"):
        await store.retry(last.id)
    assert (await said(store, last.id)).endswith("what that job depended on is no longer stored: submit them again.")


async def test_a_job_whose_time_ran_out_before_it_started_has_no_last_attempt(store: Store) -> None:
    late, unwanted = await submit(store, new_job(deadline=SOON), new_job(expires=SOON))
    await ended(store, late)
    await ended(store, unwanted)
    assert (
        await said(store, late)
        == f"It failed at its deadline, before it had started; workron retry {late} runs it again."
    )
    assert await said(store, unwanted) == f"It expired, before it had started; workron retry {unwanted} runs it again."


async def test_the_end_of_a_job_is_explained(store: Store) -> None:
    good, bad, unwanted = await submit(store, *jobs(3, max_attempts=1))
    first, second = await claim(store, limit=2)
    await finish(store, first)
    await finish(store, second, BAD)
    await store.cancel(unwanted)
    assert await said(store, good) == "It is done, after 1 attempt."
    assert "It failed after 1 attempt: the last one ended by exit code 3;" in await said(store, bad)
    assert "It was cancelled, before it had started;" in await said(store, unwanted)


async def test_an_array_tells_of_its_tasks(store: Store) -> None:
    job = array_job(5)
    await submit(store, job)
    first, _ = await claim(store, limit=2)
    await finish(store, first)
    assert await said(store, job.id) == "It waits for its tasks: 1 of 5 ended, 1 runs now."


@pytest.mark.large
async def test_the_worker_of_a_queue_was_overlooked_among_thousands_of_others(bench: Bench) -> None:
    store = bench.store(Policy(lease_ms=3_600_000))
    await store.attempts.heartbeat(replace(WORKER, id="zz", queues=("mine",), running=1), [])
    await store.attempts.heartbeat(replace(WORKER, id="other"), [])
    about = await bench.client.hgetall(bench.keys.worker("other"))
    heard = int(await bench.client.zscore(bench.keys.workers, "other"))
    pipeline = bench.client.pipeline(transaction=False)
    for number in range(9_998):
        pipeline.hset(bench.keys.worker(f"a{number:04}"), mapping=about)
        pipeline.expire(bench.keys.worker(f"a{number:04}"), 3600)
    pipeline.zadd(bench.keys.workers, {f"a{number:04}": heard for number in range(9_998)})
    await pipeline.execute()
    [job_id] = await submit(store, new_job(queue="mine"))
    assert (
        await said(store, job_id)
        == "It is the next one in queue mine, which 1 worker serves, 1 of them with free slots."
    )
