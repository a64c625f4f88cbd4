"""Redis' memory: new work is refused before it is full, running work not even when it is."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.builders import WORKER, claim, finish, jobs, new_job, submit
from tests.servers import Bench, start_server
from workron.errors import StoreFull
from workron.local.valkey import server_binary
from workron.models import Beat, ClaimRequest, Dependency, Outcome, OutputPatch, Reason, Result, Status
from workron.settings import Settings
from workron.store import Store, retention
from workron.store.policy import Policy

LIMIT = 64 * 2**20


@pytest.fixture(params=["valkey", "redis"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:  # a server that tests may fill
    binary = server_binary() if request.param == "valkey" else "redis-server"
    process = start_server(binary, tmp_path, "--maxmemory", str(LIMIT), "--maxmemory-policy", "noeviction")
    bench = Bench(request.param, f"unix://{tmp_path / 'redis.sock'}", "memory")
    yield bench
    await bench.aclose()
    process.terminate()
    process.wait(10)


async def fill(bench: Bench, share: float) -> None:
    await bench.client.delete("filler")
    await bench.client.setrange("filler", int(share * LIMIT), "x")


def sharing(bench: Bench, share: float) -> Store:
    return bench.store(Policy.of(Settings(max_memory_share=share)))


async def test_submissions_are_refused_beyond_the_share_of_memory_that_is_set(bench: Bench) -> None:
    await fill(bench, 0.5)
    store, wide = sharing(bench, 0.4), sharing(bench, 0.9)
    await submit(store, new_job())
    await store.maintenance.reap()
    for many in ([new_job()], jobs(1_000)):
        with pytest.raises(StoreFull):
            await store.submit(many)
    assert [queue.counts[Status.PENDING] for queue in await store.queues()] == [1]
    await wide.maintenance.reap()
    await submit(store, new_job())
    await store.maintenance.reap()
    await fill(bench, 0.1)
    await store.maintenance.reap()
    await submit(store, new_job())


async def test_a_refusal_for_want_of_memory_says_how_long_the_deletion_of_jobs_takes(bench: Bench) -> None:
    await fill(bench, 0.5)
    store = sharing(bench, 0.25)
    await submit(store, *jobs(100))
    for _ in range(2):
        await store.maintenance.measure()
        await bench.client.hincrby(bench.keys.meta, "rate_at", -1_000)
        for got in await claim(store, limit=10):
            await finish(store, got)
    await store.maintenance.measure()
    await store.maintenance.reap()
    with pytest.raises(StoreFull) as refused:
        await submit(store, new_job())
    assert refused.value.retry_after_s == pytest.approx(5.3, rel=0.3)  # half of 100 jobs, 10 in a second


async def test_a_full_redis_does_not_delete_a_job_before_its_waiters_have_seen_its_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sharing(bench, 0.5)
    await submit(store, *jobs(3))
    for got in await claim(store, limit=3):
        await finish(store, got)
    await fill(bench, 0.9)
    assert (await store.maintenance.sweep()).early == 0
    monkeypatch.setattr(retention, "SEEN_MS", 0)
    assert (await store.maintenance.sweep()).early == 3


async def test_results_and_heartbeats_are_taken_though_redis_has_no_memory_left(bench: Bench) -> None:
    store = sharing(bench, 0.8)
    made = await submit(store, *jobs(8))
    done, failed, released, cancelled = await claim(store, limit=4)
    await bench.client.config_set("maxmemory", 2**20)
    for many in ([new_job()], jobs(1_000)):
        with pytest.raises(StoreFull):
            await store.submit(many)
    beats = await store.attempts.heartbeat(WORKER, [(done.id, done.fence), (failed.id, failed.fence)])
    assert set(beats.attempts.values()) == {Beat.OK}
    output = OutputPatch(0, b"hello", 5)
    await store.attempts.finish([Result(done.id, done.fence, Outcome(None, exit_code=0), output)], worker="w1")
    await finish(store, failed, Outcome(Reason.EXIT_CODE, exit_code=1, error="exit code 1"))
    await store.attempts.release([(released.id, released.fence)])
    await store.cancel(cancelled.id)
    await store.cancel(made[-1])
    await store.retry(made[-1])
    await store.maintenance.reap()
    await store.maintenance.measure()
    assert len(await claim(store, limit=2)) == 2
    await store.attempts.claim(ClaimRequest("w2", ["other"], 1, "boot:1", park_ms=1_000, inbox="i"))
    states = [job.status for job in await store.jobs([done.id, failed.id, cancelled.id]) if job]
    assert states == [Status.DONE, Status.SCHEDULED, Status.RUNNING]
    assert (await store.job(cancelled.id)).cancel_requested_at_ms
    with pytest.raises(StoreFull):  # the worker keeps it, and offers it again
        await store.attempts.write_output([(cancelled.id, cancelled.fence, output)])


async def test_results_are_stored_and_dependents_notified_when_redis_is_full(bench: Bench) -> None:
    store = sharing(bench, 0.9)
    parent = new_job()
    child = new_job(depends_on=(Dependency(parent.id),))
    await submit(store, parent, child)
    (got,) = await claim(store)
    await fill(bench, 1.0)
    with pytest.raises(StoreFull):
        await store.attempts.write_output([(got.id, got.fence, OutputPatch(0, b"", 0, "0.5"))])
    await finish(store, got, Outcome(None, exit_code=0, result="[1]", progress="1"))
    (got,) = await claim(store)
    assert (got.id, [one.result for one in await store.attempts.parents(child.id)]) == (child.id, [[1]])
    job = await store.job(parent.id)
    assert (job.status, job.result, job.progress) == (Status.DONE, [1], "1")
