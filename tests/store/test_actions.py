"""Bulk actions: worked off step by step, by any number of reapers, whatever happens in between."""

import asyncio
import time
from typing import Any

import pytest

from reaper.reaper import Reaper
from tests.builders import after, claim, finish, jobs, new_job, submit
from tests.bulk_actions import FAILURE, act, counts, fail, found, order, statuses, work_off
from tests.servers import Bench
from workron import ids
from workron.errors import Conflict, IdempotencyConflict, NotFound
from workron.models import Concurrency, NewArray, NewJob, OnConflict, Outcome, Reason, Status, Unique
from workron.models.actions import ActionFilter, ActionState, NewAction, Verb
from workron.store import Store
from workron.store import bulk_actions as module


async def test_all_that_match_are_cancelled(store: Store) -> None:
    waiting = jobs(5)
    blocked: list[NewJob] = [new_job(depends_on=after(waiting[0].id))]
    scheduled = [new_job(delay_ms=60_000)]
    for new in (waiting, blocked, scheduled):
        await store.submit(new)
    (got,) = await claim(store)
    action = await act(store, Verb.CANCEL)
    assert counts(action)[2] == 0
    assert set(await statuses(store, [job.id for job in waiting[1:] + blocked + scheduled])) == {Status.CANCELLED}
    assert (await store.job(got.id)).cancel_requested_at_ms is not None
    await finish(store, got)


@pytest.mark.parametrize("number", [1, 99, 100, 101, 450])
async def test_retry_of_many_in_steps(store: Store, number: int) -> None:
    new = jobs(number)
    await store.submit(new)
    await act(store, Verb.CANCEL)
    action = await act(store, Verb.RETRY, status=Status.CANCELLED)
    assert counts(action) == (number, number, 0)
    assert action.looked == action.total == number
    assert action.finished_at_ms is not None
    assert {job.run for job in await found(store, [job.id for job in new])} == {2}


async def test_each_filter_selects(store: Store) -> None:
    a = await fail(store, 2, queue="a", name="one", tags=["x", 'y"z'])
    b = await fail(store, 1, Outcome(Reason.EXIT_CODE, exit_code=2, error="50% of %a+ (bad)"), queue="b", name="two")
    workflow = await store.submit(jobs(2, max_attempts=1), as_workflow=True)
    for _ in workflow.ids:
        await finish(store, (await claim(store))[0], FAILURE)
    times = [job.finished_at_ms or 0 for job in await found(store, [*a, *b, *workflow.ids])]
    created = [job.created_at_ms for job in await found(store, [*a, *b, *workflow.ids])]
    expected: dict[int, list[dict[str, Any]]] = {
        0: [{"name": "three"}, {"queue": "c"}, {"error": "Disk"}, {"tags": ["z"]}, {"tags": ["x", "z"]},
            {"status": Status.CANCELLED}, {"finished_before_ms": times[0]}, {"created_before_ms": created[0]},
            {"finished_after_ms": times[-1] + 1}, {"workflow": ids.new_id()}],
        1: [{"queue": "b"}, {"name": "two"}, {"error": "50% of %a+ ("}],
        2: [{"queue": "a"}, {"name": "one"}, {"tags": ["x"]}, {"tags": ['y"z', "x"]}, {"workflow": workflow.workflow},
            {"queue": "a", "error": "disk full"}, {"workflow": workflow.workflow, "error": "disk"}],
        4: [{"error": "disk full"}],
        5: [{}, {"status": Status.FAILED}, {"finished_after_ms": times[0]}, {"created_after_ms": created[0]}],
    }  # fmt: skip
    for number, filters in expected.items():
        for where in filters:
            action = await act(store, Verb.RETRY, dry_run=True, **where)
            assert counts(action) == (number, 0, 0), where
            assert action.where == ActionFilter(**{"tags": (), **where, **_tuple(where)})


def _tuple(where: dict[str, Any]) -> dict[str, Any]:
    return {"tags": tuple(where["tags"])} if "tags" in where else {}


async def test_tasks_are_found_by_what_their_array_says(store: Store) -> None:
    (job_id,) = await submit(store, new_job(array=NewArray(ids.new_id(), 3), name="n", tags=["t"], max_attempts=1))
    for _ in range(3):
        await finish(store, (await claim(store))[0], FAILURE)
    for where in ({"name": "n"}, {"tags": ["t"]}):
        assert (await act(store, Verb.RETRY, dry_run=True, **where)).matched == 4
    action = await act(store, Verb.RETRY)
    assert action.failed == 0
    assert (await store.job(job_id)).status is Status.BLOCKED
    assert len(await claim(store, limit=10)) == 3


async def test_a_dry_run_only_counts(store: Store) -> None:
    new = jobs(250)
    await store.submit(new)
    action = await act(store, Verb.CANCEL, dry_run=True)
    assert (counts(action), action.dry_run) == ((250, 0, 0), True)
    assert set(await statuses(store, [job.id for job in new])) == {Status.PENDING}


async def test_jobs_that_come_later_are_not_touched(store: Store) -> None:
    early = jobs(150)
    await store.submit(early)
    with_an_early_id = new_job(id=ids.new_id())
    await asyncio.sleep(0.003)
    last = jobs(1)
    await store.submit(last)
    action = await order(store, Verb.CANCEL)
    await store.actions.step("r")
    await asyncio.sleep(0.003)
    late = [*jobs(150), with_an_early_id]
    await store.submit(late[:150])
    await store.submit(late[150:])
    assert counts(await work_off(store, action)) == (151, 151, 0)
    assert set(await statuses(store, [job.id for job in late])) == {Status.PENDING}


async def test_a_job_that_fails_again_meanwhile_is_not_retried_again(store: Store) -> None:
    failed = await fail(store, 3)
    action = await order(store, Verb.RETRY)
    await store.actions.step("r")
    await asyncio.sleep(0.003)
    for got in await claim(store, limit=3):
        await finish(store, got, FAILURE)
    assert counts(await work_off(store, action)) == (3, 3, 0)
    assert await statuses(store, failed) == [Status.FAILED] * 3


async def test_jobs_that_leave_meanwhile_shift_nothing(store: Store) -> None:
    new = jobs(420)
    await store.submit(new)
    await act(store, Verb.CANCEL)
    action = await order(store, Verb.RETRY)
    await store.actions.step("r")
    rest = [job.id for job in await found(store, [job.id for job in new]) if job.status is Status.CANCELLED]
    for job_id in rest[::2]:  # among them ones behind which the action stands, or would come next
        await store.retry(job_id)
    await work_off(store, action)
    assert {job.run for job in await found(store, [job.id for job in new])} == {2}


async def test_skipped_jobs_are_skipped_once(store: Store) -> None:
    """Jobs that stay where they are must not hold up the others, nor be counted twice."""
    keep = await fail(store, 3, name="keep")
    new = jobs(420, name="x")
    await store.submit(new)
    await act(store, Verb.CANCEL, name="x")
    (parent,) = await submit(store, new_job())
    skipped = jobs(150, depends_on=after(parent))
    await store.submit(skipped)
    await store.cancel(parent)
    action = await act(store, Verb.RETRY, name="x")
    assert counts(action) == (420, 420, 0)
    assert await statuses(store, keep) == [Status.FAILED] * 3


async def test_failed_retries_are_counted_and_the_first_is_reported(store: Store) -> None:
    key = Unique("k", on_conflict=OnConflict.REJECT)
    (first,) = await fail(store, 1, unique=key)
    (other,) = await submit(store, new_job(unique=key))
    action = await act(store, Verb.RETRY)
    assert counts(action) == (1, 0, 1)
    assert action.first_error == f"{first}: job {other} holds its unique key k"


async def test_finished_jobs_are_deleted_with_all_their_keys(store: Store, bench: Bench) -> None:
    await fail(store, 120)
    (array,) = await submit(store, new_job(array=NewArray(ids.new_id(), 250), delay_ms=60_000))
    await store.cancel(array)
    (waiting,) = await submit(store, new_job())
    action = await act(store, Verb.DELETE)
    assert counts(action) == (121, 121, 0)
    left = {name.decode() async for name in bench.client.scan_iter(f"{bench.keys.job('')}*")}
    assert left == {bench.keys.job(waiting)}
    assert [key async for key in bench.client.scan_iter(f"{bench.keys.array('')}*")] == []
    assert [queue.name for queue in await store.queues()] == ["default"]


async def test_queues_that_get_empty_are_forgotten(store: Store) -> None:
    await fail(store, 3, queue="a")
    await act(store, Verb.DELETE, queue="a")
    assert await store.queues() == []


async def test_waiting_jobs_move_behind_the_jobs_that_wait_there(store: Store) -> None:
    mine = jobs(3, queue="a")
    delayed, blocked = new_job(queue="a", delay_ms=60_000), new_job(queue="a", depends_on=after(mine[0].id))
    await submit(store, *mine)
    await submit(store, delayed)
    await submit(store, blocked)
    (there,) = await submit(store, new_job(queue="b", priority=7))
    action = await act(store, Verb.MOVE, queue="a", to=("b", 7))
    assert counts(action) == (5, 5, 0)
    moved = await found(store, [*(job.id for job in mine), delayed.id, blocked.id])
    assert {(job.queue, job.priority) for job in moved} == {("b", 7)}
    assert await claim(store, queues=["a"]) == []
    assert [got.id for got in await claim(store, queues=["b"], limit=9)] == [there, *(job.id for job in mine)]
    assert [queue.name for queue in await store.queues()] == ["b"]


async def test_a_move_to_where_a_job_is_does_nothing(store: Store) -> None:
    await submit(store, *jobs(3))
    assert counts(await act(store, Verb.MOVE, to=("default", None))) == (0, 0, 0)
    assert counts(await act(store, Verb.MOVE, to=(None, 9))) == (3, 3, 0)
    assert counts(await act(store, Verb.MOVE, to=(None, 9))) == (0, 0, 0)


async def test_a_parked_worker_gets_a_job_that_is_moved_to_its_queue(store: Store) -> None:
    await submit(store, new_job(queue="a"))
    waiting = asyncio.create_task(claim(store, queues=["b"], wait=True))
    await asyncio.sleep(0.05)
    await act(store, Verb.MOVE, queue="a", to=("b", None))
    assert len(await waiting) == 1


async def test_arrays_and_their_tasks_are_not_moved(store: Store) -> None:
    await submit(store, new_job(array=NewArray(ids.new_id(), 2), queue="a"))
    action = await act(store, Verb.MOVE, to=("b", None))
    assert counts(action) == (3, 0, 3)


async def test_running_jobs_are_cancelled_by_their_leases(store: Store) -> None:
    await submit(store, *jobs(5))
    got = await claim(store, limit=3)
    action = await act(store, Verb.CANCEL, status=Status.RUNNING)
    assert (counts(action), action.looked) == ((3, 3, 0), 3)
    for one in got:
        await finish(store, one)
        assert (await store.job(one.id)).status is Status.CANCELLED
    await act(store, Verb.CANCEL, status=Status.RUNNING)


async def test_scheduled_jobs_are_found_by_their_due_times(store: Store) -> None:
    await submit(store, *jobs(130, delay_ms=60_000))
    await submit(store, *jobs(2))
    action = await act(store, Verb.CANCEL, status=Status.SCHEDULED)
    assert (counts(action), action.looked) == ((130, 130, 0), 130)


async def test_only_the_index_that_is_named_is_checked(store: Store) -> None:
    await fail(store, 4, queue="a")
    await fail(store, 7, queue="b")
    assert (await act(store, Verb.RETRY, queue="a", status=Status.FAILED)).looked == 4


async def test_an_abort_leaves_what_is_done(store: Store) -> None:
    new = jobs(300)
    await store.submit(new)
    action = await order(store, Verb.CANCEL)
    await store.actions.step("r")
    aborted = await store.actions.abort(action)
    assert (aborted.state, aborted.done) == (ActionState.ABORTED, 100)
    assert not await store.actions.step("r")
    assert (await statuses(store, [job.id for job in new])).count(Status.PENDING) == 200
    assert await store.actions.abort(action) == aborted  # a repeat
    with pytest.raises(Conflict):
        await store.actions.abort((await act(store, Verb.CANCEL)).id)
    with pytest.raises(NotFound):
        await store.actions.abort(ids.new_id())


async def test_two_reapers_share_the_work_and_do_nothing_twice(store: Store, bench: Bench) -> None:
    new = jobs(900)
    await store.submit(new)
    await act(store, Verb.CANCEL)
    action = await order(store, Verb.RETRY)
    reapers = [Reaper(one, every_s=0.1) for one in (store, bench.store())]
    await asyncio.gather(*(reaper.act() for reaper in reapers))
    assert counts(await store.actions.get(action)) == (900, 900, 0)
    assert {job.run for job in await found(store, [job.id for job in new])} == {2}


async def test_another_reaper_goes_on_when_the_first_has_died(
    store: Store, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.submit(jobs(300))
    action = await order(store, Verb.CANCEL)
    monkeypatch.setattr(module, "LEASE_MS", 200)
    await store.actions.step("first")
    other = bench.store()
    assert not await other.actions.step("second")
    began = time.monotonic()
    while not await other.actions.step("second"):
        await asyncio.sleep(0.01)
        assert time.monotonic() - began < 5
    while await other.actions.step("second"):
        pass
    assert counts(await store.actions.get(action)) == (300, 300, 0)


async def test_an_order_is_given_once(store: Store) -> None:
    new = NewAction(ids.new_id(), Verb.CANCEL, fingerprint="f")
    first = await store.actions.order(new)
    assert await store.actions.order(new) == first
    with pytest.raises(IdempotencyConflict):
        await store.actions.order(NewAction(new.id, Verb.CANCEL, fingerprint="g"))
    assert [action.id for action in await store.actions.list()] == [new.id]


async def test_actions_are_listed_newest_first_and_forgotten_after_a_week(store: Store, bench: Bench) -> None:
    made = []
    for _ in range(3):
        made.append((await act(store, Verb.CANCEL)).id)
        await asyncio.sleep(0.002)
    assert [action.id for action in await store.actions.list()] == made[::-1]
    assert [action.id for action in await store.actions.list(1)] == made[-1:]
    for action in made:
        ttl = await bench.client.pttl(bench.keys.action(action))
        assert 0 < ttl <= module.KEPT_MS
    await bench.client.delete(bench.keys.action(made[0]))
    assert [action.id for action in await store.actions.list()] == made[:0:-1]
    await act(store, Verb.CANCEL)
    assert await bench.client.zscore(bench.keys.actions, made[0]) is None


@pytest.mark.damaged
async def test_a_damaged_job_spares_the_others(store: Store, bench: Bench) -> None:
    (array,) = await submit(store, new_job(array=NewArray(ids.new_id(), 2), delay_ms=60_000))
    await store.cancel(array)
    failed = await fail(store, 3)
    await bench.client.delete(bench.keys.array(array), bench.keys.job(failed[1]))
    await bench.client.rpush(bench.keys.array(array), "x")
    await bench.client.rpush(bench.keys.job(failed[1]), "x")
    action = await act(store, Verb.RETRY)
    assert counts(action) == (3, 2, 1)
    assert action.first_error == f"{array}: its keys are damaged"


async def test_a_job_in_line_that_is_moved_stands_in_line_there(bench: Bench) -> None:
    store = bench.store()
    first, second, third = jobs(3, concurrency=Concurrency("k", 1))
    await store.submit([first, second, third])
    (running,) = await claim(store)
    moved = await act(store, Verb.MOVE, to=("other", 9), status=Status.PENDING)
    assert counts(moved) == (2, 2, 0)
    assert await bench.client.zrange(bench.keys.in_line("k", "other"), 0, -1) == [second.id.encode(), third.id.encode()]
    await finish(store, running)
    assert await claim(store) == []
    (claimed,) = await claim(store, queues=["other"], limit=5)
    assert claimed.id == second.id
