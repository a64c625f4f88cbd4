"""Faults that the model of the scheduler (tests/model) found in the store."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from builders import after, claim, finish, jobs, new_job, submit
from bulk_actions import act
from expiring import LATER, SOON, changed, ended
from schedules import HOUR_MS, definition, fire, full_hour_ms, hourly, make_due, outcomes, put
from servers import Bench
from unique_keys import unique

from workron import ids
from workron.models import Moment, QueueChange, Status, When
from workron.models.actions import Verb
from workron.schedules.models import RunOutcome
from workron.store import Store


async def started(store: Store) -> list[str]:
    return [one.id for one in await claim(store, limit=10)]


async def test_jobs_of_one_submission_start_in_their_order_also_if_some_have_timers(store: Store) -> None:
    first, second, third = jobs(3)
    second.expires = LATER
    await submit(store, first, second, third)
    assert await started(store) == [first.id, second.id, third.id]


async def test_a_job_that_expired_and_is_retried_goes_behind_those_that_wait(store: Store) -> None:
    (late,) = await submit(store, new_job(expires=SOON))
    (other,) = await submit(store, new_job())
    await ended(store, late)
    await store.retry(late)
    assert await started(store) == [other, late]


async def test_a_job_that_was_moved_away_and_back_goes_behind_those_that_wait(store: Store) -> None:
    (moved,) = await submit(store, new_job())
    await submit(store, new_job(run_at_ms=2**50))  # its queue stays
    await act(store, Verb.MOVE, queue="default", status=Status.PENDING, to=("elsewhere", None))
    (other,) = await submit(store, new_job())
    await act(store, Verb.MOVE, queue="elsewhere", to=("default", None))
    assert await started(store) == [other, moved]


async def test_a_job_that_is_due_and_expired_at_once_ends(store: Store) -> None:
    (late,) = await submit(store, new_job(delay_ms=1, expires=Moment(after_ms=1)))
    assert (await changed(store, late, Status.CANCELLED)).status is Status.CANCELLED


async def test_a_repeated_submission_stores_nothing_although_its_first_job_was_deleted(store: Store) -> None:
    first, second = jobs(2)
    await submit(store, first, second)
    (one, _) = await claim(store, limit=2)
    await finish(store, one)
    await store.delete(first.id)
    await submit(store, first, second)
    assert (await store.job(second.id)).status is Status.RUNNING


async def test_a_job_may_replace_one_of_a_queue_that_is_over_its_limit(store: Store) -> None:
    await submit(store, new_job(unique=unique("replace")), *jobs(2))
    await store.change_queue("default", QueueChange(max_pending=1))
    (replacing,) = await submit(store, new_job(queue="elsewhere", unique=unique("replace")))
    assert (await store.job(replacing)).status is Status.PENDING


async def test_a_job_skipped_with_its_parent_in_one_submission_says_how_that_ended(store: Store) -> None:
    (done,) = await submit(store, new_job())
    await finish(store, (await claim(store))[0])
    parent, child = ids.new_ids(2)
    await submit(
        store, new_job(id=parent, depends_on=after(done, when=When.FAILED)), new_job(id=child, depends_on=after(parent))
    )
    assert (await store.job(child)).error == f"skipped: it depends on {parent}, which ended skipped"


def before_it_is_stored(store: Store, patch: pytest.MonkeyPatch, act: Callable[[], Awaitable[object]]) -> None:
    """Have something done when a schedule is about to be stored as its next change wants it."""
    stored = store._scripts.schedule

    async def later(*args: Any, **fields: Any) -> Any:
        patch.undo()
        await act()
        return await stored(*args, **fields)

    patch.setattr(store._scripts, "schedule", later)


async def test_an_occurrence_that_is_started_while_its_schedule_is_changed_is_not_due_again(
    bench: Bench, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store)
    await make_due(bench)
    before_it_is_stored(store, monkeypatch, lambda: fire(bench.store()))
    await put(store, work={"command": "other"})
    assert await fire(store) == 0
    assert await outcomes(store) == [(RunOutcome.FIRED, 1)]


async def test_a_time_that_comes_while_a_schedule_gets_another_cron_that_names_it_too_comes_once(
    bench: Bench, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store)
    soon_ms = full_hour_ms(-1)

    async def comes() -> None:
        await bench.client.hset(bench.keys.schedule("nightly"), "last", str(soon_ms))

    before_it_is_stored(store, monkeypatch, comes)
    changed_to, _ = await store.schedules.put("nightly", hourly())
    assert (changed_to.last_at_ms, changed_to.next_at_ms) == (soon_ms, soon_ms + HOUR_MS)


async def test_a_schedule_that_was_paused_and_is_deleted_while_it_is_put_is_new_and_not_paused(
    bench: Bench, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store, paused=True)
    before_it_is_stored(store, monkeypatch, lambda: bench.store().schedules.delete("nightly"))
    made, created = await store.schedules.put("nightly", definition(), keep_paused=True)
    assert (created, made.definition.paused) == (True, False)
