"""Faults that were found in the store once; each test is named after what went wrong."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.builders import WORKER, after, claim, finish, new_job, submit
from tests.servers import Bench, lapse
from workron import ids
from workron.errors import Conflict, InvalidRequest, StoreBroken, StoreFull, StoreUnavailable, UnknownDependency
from workron.models import (
    ClaimRequest,
    Idempotency,
    JobFilter,
    NewJob,
    Outcome,
    OutputPatch,
    Reason,
    Result,
    Status,
    Submitted,
    When,
)
from workron.models.exchange import Kept
from workron.store import Store
from workron.store.decode import Row
from workron.store.policy import Policy
from workron.store.reader import Reader

FAILURE = Outcome(Reason.EXIT_CODE, exit_code=1, error="exit code 1")


async def fail_next(store: Store) -> None:
    (got,) = await claim(store)
    await finish(store, got, FAILURE)


async def end_next(store: Store) -> str:
    (got,) = await claim(store)
    await finish(store, got)
    return got.id


async def pending_ids(store: Store) -> list[str]:
    """All pending jobs, listed one by one."""
    got: list[str] = []
    cursor: str | None = None
    for _ in range(100):
        page = await store.list_jobs(JobFilter(status=Status.PENDING), limit=1, cursor=cursor)
        got += [job.id for job in page.jobs]
        cursor = page.next_cursor
        if cursor is None:
            return got
    raise AssertionError("the listing does not end")


@pytest.mark.large
async def test_a_heartbeat_of_4000_jobs_was_too_much_for_one_call(bench: Bench) -> None:
    store = bench.store(Policy(lease_ms=60_000))
    await store.submit([new_job(id=job_id) for job_id in ids.new_ids(4000)])
    held = []
    while got := await claim(store, limit=150):
        held += [(one.id, one.fence) for one in got]
    assert len((await store.attempts.heartbeat(WORKER, held)).attempts) == 4000


async def test_output_refused_by_a_full_server_was_taken_for_stored(bench: Bench) -> None:
    store = bench.store(Policy())
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await bench.client.hset(bench.keys.meta, "full", "1")
    assert await store.attempts.write_output([(job_id, got.fence, OutputPatch(0, b"abc", 3))]) == [Kept.FULL]
    await bench.client.hdel(bench.keys.meta, "full")
    assert await store.attempts.write_output([(job_id, got.fence, OutputPatch(0, b"abcdef", 6))]) == [Kept.STORED]
    assert (await store.output(job_id)).head == b"abcdef"


async def test_results_filled_a_full_server_with_output(bench: Bench) -> None:
    store = bench.store(Policy())
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await bench.client.hset(bench.keys.meta, "full", "1")
    result = Result(job_id, got.fence, Outcome(None, exit_code=0), OutputPatch(0, b"x" * 200_000, 200_000))
    await store.attempts.finish([result], worker="w1")
    output = await store.output(job_id)
    assert (output.head, output.cut, output.tail) == (b"", 200_000, b"")
    assert (await store.job(job_id)).status is Status.DONE


async def test_a_full_server_could_not_be_started_on_and_so_never_drained(bench: Bench) -> None:
    if bench.kind == "fake":
        return  # it knows no memory limit
    store = bench.store()
    await store.check()
    used = (await bench.client.info("memory"))["used_memory"]
    await bench.client.config_set("maxmemory", used // 2)
    try:
        with pytest.raises(StoreFull):
            await submit(store, new_job())
        await bench.store().check()
    finally:
        await bench.client.config_set("maxmemory", 0)


@pytest.mark.parametrize("how", ["retry", "delay"])
async def test_a_pending_job_that_is_older_than_its_neighbours_was_not_listed(store: Store, how: str) -> None:
    if how == "retry":
        made = await submit(store, *(new_job() for _ in range(6)))
        await store.cancel(made[0])
        await store.retry(made[0])  # now the oldest id is at the tail
    else:
        made = await submit(store, new_job(delay_ms=30), *(new_job() for _ in range(5)))
        await asyncio.sleep(0.05)
        await store.maintenance.promote()
    assert sorted(await pending_ids(store)) == sorted(made)


async def test_a_second_failed_parent_took_the_blame_of_the_first(store: Store) -> None:
    a, b = await submit(store, new_job(max_attempts=1), new_job(max_attempts=1))
    (child,) = await submit(store, new_job(depends_on=after(a, b)))
    await fail_next(store)
    await fail_next(store)
    job = await store.job(child)
    assert (job.caused_by, a in (job.error or "")) == (a, True)


async def test_a_parent_that_is_done_by_now_was_still_named_as_the_cause(store: Store) -> None:
    a, b = await submit(store, new_job(max_attempts=1), new_job(max_attempts=1))
    (child,) = await submit(store, new_job(depends_on=after(a, b)))
    await fail_next(store)
    await fail_next(store)
    await store.retry(a)
    await end_next(store)
    with pytest.raises(Conflict, match=b):
        await store.retry(child)


async def test_a_satisfied_edge_of_a_skipped_job_did_not_wait_for_its_parents_next_run(store: Store) -> None:
    a, b = await submit(store, new_job(max_attempts=1), new_job(max_attempts=1))
    (child,) = await submit(store, new_job(depends_on=(*after(a, when=When.FINISHED), *after(b))))
    await fail_next(store)
    await fail_next(store)
    await store.retry(a)
    (again,) = await claim(store)
    assert again.id == a
    await store.retry(b)
    assert await end_next(store) == b
    assert (await store.job(child)).status is Status.BLOCKED


async def test_a_job_that_is_done_still_named_a_cause(store: Store) -> None:
    (a,) = await submit(store, new_job(max_attempts=1))
    (b,) = await submit(store, new_job(depends_on=after(a)))
    await store.cancel(b)
    await fail_next(store)
    await store.retry(a)
    await end_next(store)
    await store.retry(b)
    await end_next(store)
    job = await store.job(b)
    assert (job.status, job.caused_by) == (Status.DONE, None)


async def test_no_worker_was_woken_when_dead_ids_ended_a_claim(bench: Bench) -> None:
    store = bench.store()
    await submit(store, new_job())
    await bench.client.rpush(bench.keys.pending("default", 5), *(f"dead{n}" for n in range(1500)))
    await submit(store, new_job())
    await bench.client.zadd(bench.keys.parked("default"), {"w2": 2**60})
    await bench.client.hset(
        f"{bench.keys.worker('w2')}:claim", mapping={"request": "b:1", "inbox": "w2", "parked": "default"}
    )
    await bench.client.expire(f"{bench.keys.worker('w2')}:claim", 60)
    got = await store.attempts.claim(ClaimRequest("w", ["default"], 2, "b:1"))
    assert len(got.claims) == 1
    assert await bench.client.llen(bench.keys.inbox("w2")) == 1


@pytest.mark.parametrize("other", [When.DONE, When.FAILED])
async def test_a_parent_named_twice_was_accepted(store: Store, other: When) -> None:
    (parent,) = await submit(store, new_job())
    with pytest.raises(InvalidRequest, match="twice"):
        await submit(store, new_job(depends_on=(*after(parent), *after(parent, when=other))))


async def test_a_job_was_not_found_while_it_was_being_admitted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = bench.store(), bench.store()
    many = [new_job(id=job_id) for job_id in ids.new_ids(500)]
    admit = store.submitter.admit_quietly

    async def not_yet(_: str) -> None:
        pass

    monkeypatch.setattr(store.submitter, "admit_quietly", not_yet)
    await store.submit(many)
    opened = Reader._opened

    async def admitted_meanwhile(reader: Reader, ids: Sequence[str], rows: list[Row | None]) -> list[Row | None]:
        await admit(many[0].id)
        return await opened(reader, ids, rows)

    monkeypatch.setattr(Reader, "_opened", admitted_meanwhile)
    assert (await other.job(many[-1].id)).status is Status.PENDING


async def test_request_ids_of_foreign_clients_broke_the_claim(store: Store) -> None:
    await submit(store, new_job(), new_job())
    first = await store.attempts.claim(ClaimRequest("w", ["default"], 1, "abc"))
    second = await store.attempts.claim(ClaimRequest("w", ["default"], 1, "def"))
    assert {one.id for one in first.claims} & {one.id for one in second.claims} == set()


async def test_refused_submissions_left_edges_on_jobs_outside(bench: Bench) -> None:
    store = bench.store()
    (parent,) = await submit(store, new_job())
    many = [new_job(depends_on=after(parent)) for _ in range(600)]
    with pytest.raises(UnknownDependency):
        await store.submit([*many, new_job(depends_on=after(ids.new_id()))])
    assert await bench.client.llen(f"{bench.keys.job(parent)}:children") == 0


async def test_skipped_jobs_left_before_the_parent_whose_retry_would_have_run_them(bench: Bench) -> None:
    store = bench.store(Policy(retention_done_ms=1, retention_failed_ms=600_000))
    (parent,) = await submit(store, new_job(max_attempts=1))
    (child,) = await submit(store, new_job(depends_on=after(parent)))
    await fail_next(store)
    await asyncio.sleep(0.02)
    await store.maintenance.sweep()
    await store.retry(parent)
    assert (await store.job(child)).status is Status.BLOCKED


async def test_a_damaged_field_left_the_rest_of_a_claim_running_without_a_lease(bench: Bench) -> None:
    store = bench.store()
    good, damaged = await submit(store, new_job(), new_job())
    await bench.client.hset(bench.keys.job(damaged), "attempts", "zzz")
    await claim(store, limit=2)
    assert (await store.job(good)).status is Status.RUNNING
    assert await bench.client.zscore(bench.keys.leases, good) is not None


@pytest.mark.damaged
async def test_a_damaged_child_stopped_every_worker(bench: Bench) -> None:
    store = bench.store()
    (parent,) = await submit(store, new_job())
    (damaged,) = await submit(store, new_job(depends_on=after(parent)))
    (child,) = await submit(store, new_job(depends_on=after(parent)))
    await bench.client.set(f"{bench.keys.job(damaged)}:parents", "what?")
    await end_next(store)
    assert (await store.job(child)).status is Status.PENDING
    assert await bench.client.smembers(f"{bench.keys.prefix}quarantine") == {damaged.encode()}


@pytest.mark.damaged
async def test_a_damaged_heartbeat_stopped_the_reaper(bench: Bench) -> None:
    store = bench.store()
    damaged, good = await submit(store, new_job(), new_job())
    await claim(store, limit=2)
    await lapse(store)
    await bench.client.rpush(bench.keys.heartbeat(damaged), "what?")
    assert (await store.maintenance.reap()).requeued == 1
    assert (await store.job(good)).status is Status.PENDING


@pytest.mark.damaged
async def test_a_damaged_hash_failed_the_whole_listing(bench: Bench) -> None:
    store = bench.store()
    damaged, good = await submit(store, new_job(), new_job())
    await bench.client.hset(bench.keys.job(damaged), "status", "weird")
    assert [job.id for job in (await store.list_jobs(JobFilter())).jobs] == [good]


async def test_a_claim_that_cannot_be_read_was_lost_and_stopped_the_worker(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job(max_attempts=1, env={"A": "b"}))
    await bench.client.hset(bench.keys.job(job_id), "env", "{")
    claimed = await store.attempts.claim(ClaimRequest("w1", ["default"], 1, "b:1"))
    assert (claimed.claims, claimed.more) == ((), True)
    await store.attempts.finish([], worker="w1")
    job = (await bench.client.hmget(bench.keys.job(job_id), "status", "reason"))[:]
    assert job == [b"failed", b"spawn"]


async def test_one_damaged_submission_lost_the_others_of_its_call(bench: Bench) -> None:
    store = bench.store()
    (parent,) = await submit(store, new_job())
    await claim(store)
    await bench.client.set(f"{bench.keys.job(parent)}:children", "what?")
    key = Idempotency("k", "once", "print")
    good, bad = new_job(), new_job(depends_on=after(parent))

    async def send(job: NewJob, idempotency: Idempotency | None = None) -> Submitted | Exception:
        try:
            return await store.submit([job], idempotency=idempotency)
        except StoreUnavailable as error:
            return error

    _, stored, refused = await asyncio.gather(send(new_job()), send(good, key), send(bad))
    again = await store.submit([new_job()], idempotency=key)
    assert isinstance(stored, Submitted)
    assert isinstance(refused, StoreBroken)
    assert again.ids == stored.ids
    await bench.client.delete(f"{bench.keys.job(parent)}:children")
    assert good.id in [one.id for one in await claim(store, limit=10)]
    assert await store.jobs([bad.id]) == [None]


async def test_the_same_key_twice_in_one_call_stored_two_jobs(store: Store) -> None:
    key = Idempotency("k", "once", "print")
    answers = await asyncio.gather(*(store.submit([new_job()], idempotency=key) for _ in range(5)))
    assert len({answer.ids for answer in answers}) == 1
    (queue,) = await store.queues()
    assert queue.counts[Status.PENDING] == 1


async def test_submissions_waited_for_an_outage_one_after_the_other(bench: Bench) -> None:
    store = bench.store()
    calls = 0

    async def away(*_: Any) -> Any:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.01)
        raise StoreUnavailable("away")

    store.scripts.job_submit = away  # type: ignore[method-assign]
    big = [new_job(command="x" * 600_000) for _ in range(10)]
    answers = await asyncio.gather(*(store.submit([job]) for job in big), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["away"] * 10
    assert calls == 1
