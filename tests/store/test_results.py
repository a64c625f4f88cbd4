"""Results, progress, tags and metadata in the store."""

import json
from typing import Any

import pytest

from tests.builders import after, claim, finish, new_job, reap_all, submit
from tests.cores import used_s
from tests.servers import Bench
from workron.errors import NotFound
from workron.models import JobFilter, Outcome, OutputPatch, Parent, Reason, Result, Status, Verdict, When, user_json
from workron.models.exchange import Kept
from workron.store import Store
from workron.store.attempts import MAX_PARENTS

DONE = Outcome(None, exit_code=0, result='{"rows":3}')
FAILED = Outcome(Reason.EXIT_CODE, exit_code=1, result="[1]")


def said(progress: str, data: bytes = b"", offset: int = 0) -> OutputPatch:
    return OutputPatch(offset, data, len(data), progress)


async def test_a_result_is_shown_with_its_job(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    assert (await finish(store, got, DONE)).verdict is Verdict.ACCEPTED
    job = await store.job(job_id)
    assert (job.status, job.result, job.error) == (Status.DONE, {"rows": 3}, None)


async def test_a_result_under_a_stale_fence_is_not_taken(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (late,) = await claim(store)
    await reap_all(store)
    (got,) = await claim(store)
    assert (await finish(store, late, Outcome(None, exit_code=0, result="1"))).verdict is Verdict.LEASE_LOST
    await finish(store, got, Outcome(None, exit_code=0, result="2"))
    assert (await finish(store, got, Outcome(None, exit_code=0, result="3"))).verdict is Verdict.RECORDED
    assert (await store.job(job_id)).result == 2


async def test_a_result_is_of_the_last_attempt_only(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await finish(store, got, FAILED)
    assert (await store.job(job_id)).result == [1]
    (got,) = await claim(store, wait=True)
    await finish(store, got)
    assert (await store.job(job_id)).result is None


async def test_a_retry_forgets_result_and_progress(store: Store) -> None:
    (job_id,) = await submit(store, new_job(max_attempts=1))
    (got,) = await claim(store)
    await store.attempts.write_output([(job_id, got.fence, said("0.5"))])
    await finish(store, got, FAILED)
    job = await store.job(job_id)
    assert (job.result, job.progress) == ([1], "0.5")
    await store.retry(job_id, None)
    job = await store.job(job_id)
    assert (job.result, job.progress) == (None, None)


async def test_a_remark_on_a_success_is_its_error_and_it_is_done(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await finish(store, got, Outcome(None, exit_code=0, error="its result was not kept"))
    job = await store.job(job_id)
    assert (job.status, job.error) == (Status.DONE, "its result was not kept")


async def test_a_result_is_kept_when_the_memory_for_new_work_is_used_up(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await bench.client.hset(bench.keys.meta, "full", 1)
    await finish(store, got, DONE)
    assert (await store.job(job_id)).result == {"rows": 3}


async def test_progress_is_seen_while_the_job_runs_and_after_it(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    assert await store.attempts.write_output([(job_id, got.fence, said("0.25"))]) == [Kept.STORED]
    assert (await store.job(job_id)).progress == "0.25"
    assert (await store.output(job_id)).attempt_fence is None
    await store.attempts.write_output([(job_id, got.fence, said("copying", b"out"))])
    job = await store.job(job_id)
    assert (job.progress, (await store.output(job_id)).head) == ("copying", b"out")
    await store.attempts.write_output([(job_id, got.fence, OutputPatch(3, b"put", 6))])
    assert (await store.job(job_id)).progress == "copying"
    await finish(store, got, Outcome(None, exit_code=0, progress="1"))
    assert (await store.job(job_id)).progress == "1"


async def test_progress_of_an_attempt_that_lost_its_lease_is_not_taken_and_the_next_begins_without(
    store: Store,
) -> None:
    (job_id,) = await submit(store, new_job())
    (late,) = await claim(store)
    await store.attempts.write_output([(job_id, late.fence, said("0.9"))])
    await reap_all(store)
    assert (await store.job(job_id)).progress is None
    assert await store.attempts.write_output([(job_id, late.fence, said("1"))]) == [Kept.LOST]
    (got,) = await claim(store)
    await store.attempts.write_output([(job_id, got.fence, said("0.1"))])
    await store.attempts.release([(job_id, got.fence)])
    assert (await store.job(job_id)).progress is None


async def test_parents_are_listed_with_name_status_and_result(store: Store) -> None:
    good, bad = new_job(name="good"), new_job(max_attempts=1)
    child = new_job(depends_on=(*after(good.id), *after(bad.id, when=When.FAILED)))
    await submit(store, good, bad, child)
    for got, outcome in zip(await claim(store, limit=2), (DONE, FAILED), strict=True):
        await finish(store, got, outcome)
    (got,) = await claim(store)
    assert (got.id, got.more) == (child.id, {"parents": True})
    assert await store.attempts.parents(child.id) == [
        Parent(good.id, Status.DONE, "good", {"rows": 3}),
        Parent(bad.id, Status.FAILED, None, [1]),
    ]


async def test_a_job_without_dependencies_has_no_parents_and_its_claim_says_nothing(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    assert (got.more, await store.attempts.parents(job_id)) == ({}, [])
    assert await bench.client.hexists(bench.keys.job(job_id), "more") == 0
    with pytest.raises(NotFound):
        await store.attempts.parents("0000000000000000000000")


@pytest.mark.damaged
async def test_a_parent_that_is_no_longer_stored_or_damaged_has_no_status(bench: Bench) -> None:
    store = bench.store()
    gone, broken = new_job(), new_job()
    child = new_job(depends_on=after(gone.id, broken.id))
    await submit(store, gone, broken, child)
    await bench.client.delete(bench.keys.job(gone.id))
    await bench.client.set(bench.keys.job(broken.id), "x")
    assert await store.attempts.parents(child.id) == [
        Parent(gone.id, None, None, None),
        Parent(broken.id, None, None, None),
    ]


async def test_many_parents_are_listed_within_bounds(bench: Bench) -> None:
    store = bench.store()
    parents = [new_job() for _ in range(130)]
    child = new_job(depends_on=after(*(parent.id for parent in parents)))
    await submit(store, *parents, child)
    big = json.dumps("x" * (user_json.MAX_RESULT - 2)).encode()
    for parent in parents:
        await bench.client.hset(bench.keys.job(parent.id), "result", big)
    told = await store.attempts.parents(child.id)
    assert [parent.id for parent in told] == [parent.id for parent in parents]
    kept = [parent for parent in told if parent.result is not None]
    assert len(kept) == MAX_PARENTS // user_json.MAX_RESULT
    assert all(parent.left_out for parent in told if parent.result is None)


async def test_tags_and_metadata_are_kept_and_found(store: Store) -> None:
    one = new_job(tags=("nightly", "eu"), metadata={"team": "data", "size": 3, "deep": {"a": [1]}})
    two = new_job(tags=("nightly",), metadata={"team": "web", "size": "3", "on": True})
    await submit(store, one, two, new_job())
    job = await store.job(one.id)
    assert (job.tags, job.metadata) == (("nightly", "eu"), {"team": "data", "size": 3, "deep": {"a": [1]}})

    async def found(**where: object) -> list[str]:
        return [job.id for job in (await store.list_jobs(JobFilter(**where), limit=10)).jobs]  # type: ignore[arg-type]

    assert await found(tags=["nightly"]) == [two.id, one.id]
    assert await found(tags=["nightly", "eu"]) == [one.id]
    assert await found(tags=["night"]) == []
    assert await found(metadata={"team": "web"}) == [two.id]
    assert await found(metadata={"size": "3"}) == [two.id, one.id]
    assert await found(metadata={"on": "true"}) == [two.id]
    assert await found(metadata={"deep": '{"a":[1]}'}) == [one.id]
    assert await found(metadata={"team": "data"}, tags=["nightly"], status=Status.PENDING) == [one.id]
    assert await found(metadata={"nothing": ""}) == []


async def test_a_result_reported_with_output_and_other_results_is_distinguished(store: Store) -> None:
    ids = await submit(store, *(new_job() for _ in range(3)))
    claims = await claim(store, limit=3)
    results = [
        Result(claims[0].id, claims[0].fence, Outcome(None, exit_code=0)),
        Result(claims[1].id, claims[1].fence, DONE, OutputPatch(0, b"hello", 5)),
        Result(claims[2].id, claims[2].fence, Outcome(None, exit_code=0, result='""')),
    ]
    await store.attempts.finish(results, worker="w1")
    assert [job and job.result for job in await store.jobs(ids)] == [None, {"rows": 3}, ""]
    assert (await store.output(ids[1])).head == b"hello"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"{", "is not JSON"),
        (b"NaN", "is not JSON"),
        (b'"\xff"', "is not JSON"),
        (b"[" * 102 + b"]" * 102, "is nested more than 100 levels deep"),
        (b"[" * 2000 + b"]" * 2000, "is not JSON"),
        (b'"' + b"x" * user_json.MAX_RESULT + b'"', "is longer than 65,536 bytes"),
    ],
)
def test_what_cannot_be_kept_as_a_result_is_refused_with_a_reason(text: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        user_json.check(text, user_json.MAX_RESULT)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (b"", None),
        (b" \n", None),
        (b"null", None),
        (b' {"a": 1}\n', '{"a":1}'),
        (b"0", "0"),
        (b"[" * 100 + b"]" * 100, ...),
    ],
)
def test_what_is_kept_as_a_result_is_compact(text: bytes, kept: object) -> None:
    assert user_json.check(text, user_json.MAX_RESULT) == (text.decode() if kept is ... else kept)


async def test_ten_thousand_parents_are_read_in_steps_of_a_few_milliseconds(
    valkey_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench("valkey", valkey_url, namespace)
    store = bench.store()
    parents = [new_job() for _ in range(10_000)]
    child = new_job(depends_on=after(*(parent.id for parent in parents)))
    await submit(store, *parents, child)
    big = json.dumps("x" * (user_json.MAX_RESULT - 2)).encode()
    for parent in parents[:100]:
        await bench.client.hset(bench.keys.job(parent.id), "result", big)
    server = (await bench.client.info("server"))["process_id"]
    read, steps = store.scripts.job_parents, []

    async def measured(*of: Any, **options: Any) -> Any:
        before = used_s(server)
        reply = await read(*of, **options)
        steps.append(used_s(server) - before)
        return reply

    monkeypatch.setattr(store.scripts, "job_parents", measured)
    told = await store.attempts.parents(child.id)
    assert [parent.id for parent in told] == [parent.id for parent in parents]
    assert len(steps) >= 100
    assert max(steps) < 0.010
    await bench.aclose()
