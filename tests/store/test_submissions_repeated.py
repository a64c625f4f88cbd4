"""Calls of a submission that come once more, as the reply to the first was lost."""

from typing import Any

import pytest

from tests.builders import claim, jobs, new_job, submit
from tests.servers import Bench
from tests.unique_keys import unique
from workron.models import Idempotency, NewJob, Status
from workron.store import Store


async def test_a_chunk_and_the_opening_of_an_open_submission_are_answered_as_the_first_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, open_it = store.scripts.submission_stage, store.scripts.submission_open
    staged: list[dict[str, Any]] = []
    replies: list[Any] = []

    async def noted(**call: Any) -> Any:
        staged.append(call | {"jobs": list(call["jobs"])})
        return await stage(**staged[-1])

    async def repeated(**call: Any) -> Any:
        replies.extend([await open_it(**call), await open_it(**call), await stage(**staged[-1])])
        return replies[0]

    monkeypatch.setattr(store.scripts, "submission_stage", noted)
    monkeypatch.setattr(store.scripts, "submission_open", repeated)
    await store.submit(jobs(900))
    opened, again, chunk = replies
    assert (opened[0], again, chunk) == (b"OPEN", opened, [b"STORED", 0])
    assert (await store.queue("default")).counts[Status.PENDING] == 900


async def test_the_opening_is_answered_also_after_the_admission(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when a second reaper has tried to give the submission up meanwhile."""
    open_it = store.scripts.submission_open
    calls: list[dict[str, Any]] = []

    async def noted(**call: Any) -> Any:
        calls.append(call)
        return await open_it(**call)

    monkeypatch.setattr(store.scripts, "submission_open", noted)
    await store.submit(jobs(900))
    assert await open_it(**calls[0]) == [b"OPEN", 0]
    assert await store.scripts.submission_abort(calls[0]["batch"], 0) == [b"ABORTED"]
    assert await open_it(**calls[0]) == [b"OPEN", 0]


@pytest.mark.parametrize("mark", ["is there", "has expired"])
async def test_a_submission_that_was_given_up_is_not_opened(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    """Its submitter would be told that its jobs are stored."""
    store = bench.store()
    open_it = store.scripts.submission_open

    async def late(**call: Any) -> Any:
        while await store.scripts.submission_abort(call["batch"], 0) == [b"MORE"]:
            pass
        if mark == "has expired":
            await bench.client.delete(bench.keys.batch(call["batch"]))
        return await open_it(**call)

    monkeypatch.setattr(store.scripts, "submission_open", late)
    many = jobs(900)
    with pytest.raises(Exception, match="aborted"):
        await store.submit(many)
    assert set(await store.jobs([job.id for job in many])) == {None}


async def test_a_submission_is_not_admitted_before_it_is_open(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of its jobs would run although the submission may still be refused."""
    open_it = store.scripts.submission_open
    early: list[Any] = []

    async def late(**call: Any) -> Any:
        early.append((await store.scripts.submission_admit(call["batch"]), await claim(store)))
        return await open_it(**call)

    monkeypatch.setattr(store.scripts, "submission_open", late)
    await store.submit(jobs(900))
    assert early == [([b"CLOSED"], [])]
    assert (await store.queue("default")).counts[Status.PENDING] == 900


async def test_a_submission_that_is_gone_leaves_the_list(store: Store, bench: Bench) -> None:
    await bench.client.zadd(bench.keys.batches, {new_job().id: 1})
    await store.maintenance.tidy()
    assert not await bench.client.exists(bench.keys.batches)


async def test_jobs_whose_holders_are_all_returned_need_no_memory(store: Store, bench: Bench) -> None:
    """There is nothing to store: a full server refused the repeat of what it had."""
    first = await submit(store, *(new_job(unique=unique("return", key)) for key in "ab"))
    await bench.client.hset(bench.keys.meta, "full", "5")
    assert await submit(store, *(new_job(unique=unique("return", key)) for key in "ab")) == first


async def with_a_returned_first_job(store: Store) -> list[NewJob]:
    """Return a large submission whose first job will not be stored: another one holds its unique key."""
    await submit(store, new_job(queue="other", unique=unique("return")))
    many = jobs(900)
    many[0].unique = unique("return")
    return many


async def test_a_submission_that_was_being_aborted_was_taken_for_an_admitted_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first job was returned; its submitter was told that all others are stored."""
    store = bench.store()
    open_it = store.scripts.submission_open

    async def late(**call: Any) -> Any:
        assert await store.scripts.submission_abort(call["batch"], 0) == [b"MORE"]
        return await open_it(**call)

    monkeypatch.setattr(store.scripts, "submission_open", late)
    many = await with_a_returned_first_job(store)
    with pytest.raises(Exception, match="aborted"):
        await store.submit(many, idempotency=Idempotency("me", "key", "fingerprint"))
    assert set(await store.jobs([job.id for job in many])) == {None}
    assert not await bench.client.exists(bench.keys.returned(many[0].id))


async def test_the_opening_is_answered_after_the_admission_also_if_the_first_job_was_returned(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_it = store.scripts.submission_open
    calls: list[dict[str, Any]] = []

    async def noted(**call: Any) -> Any:
        calls.append(call)
        return await open_it(**call)

    monkeypatch.setattr(store.scripts, "submission_open", noted)
    await store.submit(await with_a_returned_first_job(store))
    assert await store.scripts.submission_abort(calls[0]["batch"], 0) == [b"ABORTED"]
    assert await open_it(**calls[0]) == [b"OPEN", 0]


async def test_the_reaper_goes_on_with_an_abort_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The submission was aborted a moment ago: it need not be idle for an hour."""
    open_it = store.scripts.submission_open
    words: list[Any] = []

    async def late(**call: Any) -> Any:
        for idle_ms in (0, 3_600_000, 3_600_000):
            words.extend(await store.scripts.submission_abort(call["batch"], idle_ms))
        return await open_it(**call)

    monkeypatch.setattr(store.scripts, "submission_open", late)
    with pytest.raises(Exception, match="aborted"):
        await store.submit(jobs(900))
    assert words == [b"MORE", b"MORE", b"ABORTED"]
