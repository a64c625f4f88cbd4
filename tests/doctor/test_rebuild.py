"""`workron doctor --rebuild`: what waits meanwhile, what goes on, and what is left of one that dies."""

import asyncio
from typing import Any

import pytest

from tests.builders import WORKER, claim, finish, jobs, new_job, submit
from tests.damaged_namespace import Patient
from tests.lua_source import SCRIPTS
from tests.servers import Bench
from workron.doctor import patience
from workron.doctor.rebuild_lock import RebuildLock
from workron.errors import StoreBroken, StoreUnavailable
from workron.models import Beat, Status
from workron.redis.scripts import Script
from workron.store import Store


def lock_of(store: Store, lease_s: float = 60) -> RebuildLock:
    return RebuildLock(store.scripts, "somebody", lease_s)


async def test_all_that_changes_something_waits_and_what_runs_goes_on(bench: Bench) -> None:
    patient = await Patient(bench).build()
    store = bench.store()
    (running,) = await claim(store)
    lock = lock_of(store)
    await lock.acquire()
    store.connection.budget_s = 0.2  # a call gives up after that
    before = await bench.client.hgetall(bench.keys.queue("default"))
    for call in (
        lambda: store.submit([new_job()]),
        lambda: claim(store),
        lambda: finish(store, running),
        lambda: store.cancel(patient.pending),
        lambda: store.maintenance.reap(),
        lambda: store.spot_check.look(),
    ):
        with pytest.raises(StoreUnavailable, match="being rebuilt"):
            await call()
    assert await bench.client.hgetall(bench.keys.queue("default")) == before
    assert (await store.job(running.id)).status is Status.RUNNING
    beat = await store.attempts.heartbeat(WORKER, [(running.id, running.fence)])
    assert beat.attempts == {running.fence: Beat.OK}
    await lock.release()
    store = bench.store()
    assert (await finish(store, running)).status is Status.DONE
    await patient.run_to_the_end()


async def test_calls_that_may_not_be_made_twice_wait_for_the_end_of_a_rebuild(bench: Bench) -> None:
    store = bench.store()
    await submit(store, new_job())
    lock = lock_of(store)
    await lock.acquire()
    claiming = asyncio.create_task(claim(store))
    await asyncio.sleep(0.1)
    await lock.release()
    (claimed,) = await claiming
    await finish(store, claimed)


async def test_a_rebuild_that_died_holds_up_calls_only_briefly(bench: Bench) -> None:
    store = bench.store()
    (job,) = await submit(store, new_job())
    await bench.client.hset(bench.keys.meta, mapping={"rebuilding": "somebody", "rebuilding_until": 1})
    assert [one.id for one in await claim(store)] == [job]
    report = await store.doctor.examine(rebuild=True)
    assert (report.faults, report.mended) == ((), ())
    assert await bench.client.hget(bench.keys.meta, "rebuilding") is None


async def test_a_rebuild_whose_lock_has_expired_writes_nothing(bench: Bench) -> None:
    store = bench.store()
    lock = lock_of(store)
    await lock.acquire()
    await bench.client.hset(bench.keys.meta, mapping={"rebuilding": "somebody", "rebuilding_until": 1})
    with pytest.raises(StoreBroken, match="run it again"):
        await lock.write([("SADD", bench.keys.queues, "x")])
    assert not await bench.client.exists(bench.keys.queues)
    await bench.client.delete(bench.keys.meta)


async def test_a_write_whose_reply_was_lost_was_made_twice(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    store = bench.store()
    write, replies = store.scripts.doctor_rebuild, iter([b"lost"])

    async def lose_reply(*call: Any) -> Any:
        answer = await write(*call)
        if next(replies, None):
            raise StoreUnavailable("the reply was lost")
        return answer

    lock = lock_of(store)
    await lock.acquire()
    monkeypatch.setattr(store.scripts, "doctor_rebuild", lose_reply)
    monkeypatch.setattr(patience, "_PAUSE_S", 0.0)
    await lock.write([("RPUSH", bench.keys.propagate, "x")])
    await lock.write([("RPUSH", bench.keys.propagate, "y")])
    await lock.release()
    assert await bench.client.lrange(bench.keys.propagate, 0, -1) == [b"x", b"y"]
    await bench.client.delete(bench.keys.propagate)


def silences(store: Store, monkeypatch: pytest.MonkeyPatch, times: int, after: int) -> None:
    """Have reads fail `times` in succession, the first one after so many."""
    each, left = store.connection.each, iter([False] * after + [True] * times)

    async def fail(commands: Any) -> Any:
        if next(left, False):
            raise StoreUnavailable("Redis did not answer")
        return await each(commands)

    monkeypatch.setattr(store.connection, "each", fail)
    monkeypatch.setattr(patience, "_PAUSE_S", 0.0)


@pytest.mark.damaged
async def test_one_silence_of_redis_ended_a_rebuild(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    patient = await Patient(bench).build()
    await bench.client.delete(bench.keys.jobs)
    silences(patient.store, monkeypatch, times=3, after=2)
    assert await patient.faults(rebuild=True) == {}
    silences(patient.store, monkeypatch, times=3, after=2)
    assert await patient.faults() == {}


@pytest.mark.damaged
async def test_a_rebuild_that_loses_redis_says_what_to_do_and_the_next_one_does_the_rest(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = await Patient(bench).build()
    await bench.client.delete(bench.keys.jobs)
    with monkeypatch.context() as away:
        away.setattr(patience, "PATIENCE_S", 0.0)
        silences(patient.store, away, times=1_000, after=4)
        with pytest.raises(StoreUnavailable, match=r"stopped midway: Redis did not answer\. .*run the rebuild again"):
            await patient.faults(rebuild=True)
    waiting = bench.store()
    waiting.connection.budget_s = 0.2
    with pytest.raises(StoreUnavailable, match="being rebuilt"):
        await submit(waiting, new_job())
    await bench.client.hset(bench.keys.meta, "rebuilding_until", 1)  # the minute is over
    assert await patient.faults(rebuild=True) == {}
    await patient.run_to_the_end()


async def test_a_look_reports_its_progress(bench: Bench) -> None:
    store = bench.store()
    await submit(store, *jobs(20))
    said: list[tuple[str, int, int]] = []
    await store.doctor.examine(rebuild=True, say=lambda *news: said.append(news))
    assert {"checking keys", "counting jobs", "comparing counts"} <= {what for what, _, _ in said}
    assert ("counting jobs", 20, 20) in said
    assert ("rebuild, round 1: counting jobs", 20, 20) in said


@pytest.mark.damaged
async def test_what_a_rebuild_that_died_has_left_the_next_one_mends(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = await Patient(bench).build()
    for key in (bench.keys.jobs, bench.keys.due, bench.keys.pending("default", 5), bench.keys.queue("default")):
        await bench.client.delete(key)
    write, left = RebuildLock.write, iter(range(2))

    async def die(lock: RebuildLock, commands: list[tuple[str | int, ...]]) -> None:
        if next(left, None) is None:
            raise OSError("killed")
        await write(lock, commands[:3])

    monkeypatch.setattr(RebuildLock, "write", die)
    with pytest.raises(OSError, match="killed"):
        await patient.faults(rebuild=True)
    monkeypatch.undo()
    assert await patient.faults(rebuild=True) == {}
    await patient.run_to_the_end()


async def test_jobs_of_a_submission_that_is_not_admitted_yet_are_not_counted(bench: Bench) -> None:
    store = bench.store()

    async def admit_later(_: str) -> None: ...

    store.submitter.admit_quietly = admit_later  # type: ignore[method-assign]
    await store.submit(jobs(500))
    report = await store.doctor.examine(rebuild=True)
    assert (report.faults, report.mended) == ((), ())
    await bench.store().maintenance.tidy()
    assert (await store.queue("default")).counts[Status.PENDING] == 500


def test_every_script_that_changes_something_waits() -> None:
    goes_on = {name for name in SCRIPTS if b"REBUILDING all" not in Script.load(name, shebang=False).source}
    of_the_doctor = {"doctor_jobs", "doctor_members", "doctor_rebuild", "doctor_survey"}
    assert goes_on == {"job_output", "attempt_heartbeat", "job_parents", "job_show"} | of_the_doctor
