"""What was stored while the server's clock was ahead does not hold anything up for as long as it was ahead."""

from dataclasses import replace
from typing import Final

import pytest

from tests.builders import WORKER, claim, finish, jobs, new_job, submit
from tests.bulk_actions import counts, order
from tests.servers import Bench
from workron.models import Moment, NewJob, Outcome, QueueChange, Rate, Reason, Status
from workron.models.actions import Verb
from workron.models.workers import WorkerStatus
from workron.store import Store
from workron.store.policy import Policy

DAY_MS: Final = 86_400_000
PATIENT: Final = Policy(lease_ms=30_000, pass_ms=1000, retry_ms=60_000, retry_max_ms=60_000)


async def now_ms(bench: Bench) -> int:
    seconds, micros = await bench.client.time()
    return int(seconds) * 1000 + int(micros) // 1000


async def set_ahead(bench: Bench, job_id: str, member: str, field: str) -> None:
    await bench.client.zincrby(bench.keys.due, DAY_MS, member)
    await bench.client.hincrby(bench.keys.job(job_id), field, DAY_MS)


async def due_in_ms(bench: Bench, member: str) -> float:
    score = await bench.client.zscore(bench.keys.due, member)
    assert score is not None
    return float(score) - await now_ms(bench)


async def test_a_retry_waited_as_long_as_the_clock_had_been_ahead(bench: Bench) -> None:
    store = bench.store(PATIENT)
    [job_id] = await submit(store, new_job(max_attempts=3))
    await finish(store, (await claim(store))[0], Outcome(Reason.EXIT_CODE, exit_code=1))
    assert (await store.job(job_id)).status is Status.SCHEDULED
    await set_ahead(bench, job_id, job_id, "run_at")
    [fault] = await store.spot_check.look()
    assert (fault.code, fault.mended) == ("not-due", True)
    assert await due_in_ms(bench, job_id) <= 60_000
    assert await store.spot_check.look() == []


async def test_a_delayed_job_waited_as_long_as_the_clock_had_been_ahead(bench: Bench) -> None:
    store = bench.store(PATIENT)
    many = jobs(2, delay_ms=60_000)
    await submit(store, many[0])
    await store.submit(jobs(600, delay_ms=60_000))
    for job in many[:1]:
        await set_ahead(bench, job.id, job.id, "run_at")
        while not await store.spot_check.look():
            pass
        assert await due_in_ms(bench, job.id) <= 60_000


@pytest.mark.parametrize("kind", ["deadline", "expires"])
async def test_a_timer_waited_as_long_as_the_clock_had_been_ahead(bench: Bench, kind: str) -> None:
    store = bench.store(PATIENT)
    [job_id] = await submit(store, new_job(**{kind: Moment(after_ms=60_000)}))
    await set_ahead(bench, job_id, f"{kind} {job_id}", f"{kind}_at")
    [fault] = await store.spot_check.look()
    assert (fault.code, fault.mended) == ("not-due", True)
    assert await due_in_ms(bench, f"{kind} {job_id}") <= 60_000


async def test_a_named_moment_stays(bench: Bench) -> None:
    store = bench.store(PATIENT)
    later = await now_ms(bench) + DAY_MS
    named = new_job(run_at_ms=later, deadline=Moment(at_ms=later + 1), expires=Moment(at_ms=later + 2))
    await submit(store, named)
    assert await store.spot_check.look() == []
    members = (named.id, f"deadline {named.id}", f"expires {named.id}")
    assert [await bench.client.zscore(bench.keys.due, one) for one in members] == [later, later + 1, later + 2]


async def test_a_rate_let_nothing_start_for_as_long_as_the_clock_had_been_ahead(bench: Bench) -> None:
    store = bench.store(PATIENT)
    await store.change_queue("default", QueueChange(rate=Rate(2, 3_600_000)))
    await submit(store, *jobs(6))
    assert len(await claim(store, limit=6)) == 2
    starts = [int(at) + DAY_MS for at in await bench.client.lrange(bench.keys.starts("default"), 0, -1)]
    await bench.client.delete(bench.keys.starts("default"))
    await bench.client.rpush(bench.keys.starts("default"), *starts)
    assert len(await claim(store, limit=6)) == 2
    assert await claim(store, limit=6) == []


async def test_what_a_submitter_left_behind_kept_its_room_for_a_day(bench: Bench) -> None:
    store = bench.store(PATIENT)
    [first, *_] = many = jobs(800)
    await _stage_alone(store, many)
    await bench.client.zincrby(bench.keys.batches, DAY_MS, first.id)
    assert await store.maintenance.tidy() == 0
    assert await bench.client.zscore(bench.keys.batches, first.id) <= await now_ms(bench)
    await bench.client.zincrby(bench.keys.batches, -120_000, first.id)
    assert await store.maintenance.tidy() == 1


async def _stage_alone(store: Store, many: list[NewJob]) -> None:
    """Have a submitter die with its first chunk."""
    run = store.scripts._run

    async def once(script: str, *args: object, **options: object) -> object:
        if script != "submission_stage" or args[1] != 0:
            raise Died
        return await run(script, *args, **options)  # type: ignore[arg-type]

    store.scripts._run = once  # type: ignore[method-assign]
    with pytest.raises(Died):
        await store.submit(many)
    store.scripts._run = run  # type: ignore[method-assign]


class Died(Exception):
    """Nothing is cleaned up behind it."""


async def test_a_worker_that_was_heard_tomorrow_is_lost(bench: Bench) -> None:
    store = bench.store(PATIENT)
    await store.attempts.heartbeat(replace(WORKER, id="w1"), [])
    await bench.client.zincrby(bench.keys.workers, DAY_MS, "w1")
    assert (await store.worker("w1")).status is WorkerStatus.LOST
    await store.attempts.heartbeat(replace(WORKER, id="w1"), [])
    assert (await store.worker("w1")).status is WorkerStatus.ACTIVE


async def test_a_bulk_action_stood_still_for_as_long_as_the_clock_had_been_ahead(bench: Bench) -> None:
    store = bench.store(PATIENT)
    await submit(store, *jobs(150))
    action = await order(store, Verb.CANCEL, status=Status.PENDING)
    assert await store.actions.step("a reaper that died")
    await bench.client.hincrby(bench.keys.action(action), "leased_until", DAY_MS)
    while await store.actions.step("another one"):
        pass
    assert counts(await store.actions.get(action))[0] == 150
