"""What is refused, or was given up by who asked for it, leaves nothing in Redis."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.array_jobs import array_job
from tests.builders import WORKER, after, claim, jobs, new_job
from tests.servers import Bench
from workron import ids
from workron.errors import (
    Conflict,
    IdempotencyConflict,
    NotFound,
    QueueFull,
    StoreFull,
    UniqueConflict,
    UnknownDependency,
    WorkronError,
)
from workron.models import (
    ClaimRequest,
    Dependency,
    Idempotency,
    NewJob,
    OnConflict,
    OnFailure,
    Outcome,
    OutputPatch,
    QueueChange,
    Result,
    Unique,
    When,
)
from workron.models.workers import Drain
from workron.settings import Settings
from workron.store import Store

Call = Callable[[Store], Awaitable[object]]
Preparation = Callable[[Store], Awaitable[Call]]
REFUSED: Final[dict[str, tuple[Preparation, type[WorkronError]]]] = {}
UNHEARD: Final[dict[str, Preparation]] = {}
AGAIN: Final = 5
ONE_HOLDS: Final = Unique("the-key", on_conflict=OnConflict.REJECT)


def refused(error: type[WorkronError]) -> Callable[[Preparation], Preparation]:
    """A call that raises this error, whatever is asked again and again."""

    def note(prepare: Preparation) -> Preparation:
        REFUSED[prepare.__name__] = prepare, error
        return prepare

    return note


def unheard(prepare: Preparation) -> Preparation:
    """A call that changes nothing, and is answered."""
    UNHEARD[prepare.__name__] = prepare
    return prepare


def with_values(**fields: Any) -> NewJob:
    return array_job(3, values=["a", "b", "c"], **fields)


def a_large_one(**fields: Any) -> list[NewJob]:
    """More jobs than one call takes, and values with the last of them."""
    many = jobs(800)
    return [*many, with_values(id=ids.ids_from(many[0].id, 801)[-1], **fields)]


@refused(QueueFull)
async def queue_full(store: Store) -> Call:
    await store.change_queue("closed", QueueChange(max_pending=3))
    return lambda store: store.submit([with_values(queue="closed")])


@refused(QueueFull)
async def queue_full_for_the_same_key(store: Store) -> Call:
    await store.change_queue("closed", QueueChange(max_pending=3))
    key = Idempotency("default", "always", "body")
    return lambda store: store.submit([with_values(queue="closed")], idempotency=key)


@refused(QueueFull)
async def closed_queue(store: Store) -> Call:
    await store.change_queue("closed", QueueChange(max_pending=0))
    return lambda store: store.submit([with_values(queue="closed")])


@refused(QueueFull)
async def all_queues_full(store: Store) -> Call:
    await store.limit_all(Settings(max_pending_total=3))
    return lambda store: store.submit([with_values()])


@refused(QueueFull)
async def large_and_the_queue_is_full(store: Store) -> Call:
    await store.limit_all(Settings(max_pending_total=803))
    return lambda store: store.submit(a_large_one())


@refused(StoreFull)
async def memory_full(store: Store) -> Call:
    await store.connection.call("HSET", store.keys.meta, "full", 1)
    return lambda store: store.submit([with_values()])


@refused(UniqueConflict)
async def unique_key_held(store: Store) -> Call:
    await store.submit([new_job(unique=ONE_HOLDS)])
    return lambda store: store.submit([with_values(unique=ONE_HOLDS)])


@refused(UnknownDependency)
async def unknown_dependency(_store: Store) -> Call:
    return lambda store: store.submit([with_values(depends_on=after(ids.new_id()))])


@refused(UnknownDependency)
async def large_and_a_dependency_is_unknown(_store: Store) -> Call:
    return lambda store: store.submit(a_large_one(depends_on=after(ids.new_id())))


@refused(WorkronError)
async def follows_what_is_no_array(store: Store) -> Call:
    plain = new_job()
    await store.submit([plain])
    return lambda store: store.submit([with_values(depends_on=[Dependency(plain.id, When.DONE, matching=True)])])


@refused(IdempotencyConflict)
async def repeated_key_with_another_body(store: Store) -> Call:
    await store.submit([with_values()], idempotency=Idempotency("default", "key", "one"))
    return lambda store: store.submit([with_values()], idempotency=Idempotency("default", "key", "other"))


@refused(Conflict)
async def workflow_was_stopped(store: Store) -> Call:
    workflow = (await store.submit([new_job(), new_job()], as_workflow=True, on_failure=OnFailure.STOP)).workflow
    assert workflow
    await store.cancel_workflow(workflow)
    return lambda store: store.add(workflow, [with_values()])


@refused(NotFound)
async def workflow_is_unknown(_store: Store) -> Call:
    return lambda store: store.add(ids.new_id(), [with_values()])


@refused(NotFound)
async def cancel_of_a_made_up_job(_store: Store) -> Call:
    return lambda store: store.cancel(ids.new_id())


@refused(NotFound)
async def retry_of_a_made_up_job(_store: Store) -> Call:
    return lambda store: store.retry(ids.new_id())


@refused(NotFound)
async def delete_of_a_made_up_job(_store: Store) -> Call:
    return lambda store: store.delete(ids.new_id())


@refused(NotFound)
async def drain_of_a_made_up_worker(_store: Store) -> Call:
    return lambda store: store.attempts.drain(ids.new_id(), Drain())


@refused(NotFound)
async def parents_of_a_made_up_job(_store: Store) -> Call:
    return lambda store: store.attempts.parents(ids.new_id())


@unheard
async def repeat_of_a_stored_one(store: Store) -> Call:
    key = Idempotency("default", "key", "body")
    await store.submit([with_values()], idempotency=key)
    return lambda store: store.submit([with_values()], idempotency=key)


@unheard
async def held_by_another_that_is_returned(store: Store) -> Call:
    unique = Unique("the-key")
    await store.submit([with_values(unique=unique)])
    return lambda store: store.submit([with_values(unique=unique)], idempotency=Idempotency("default", "one", "body"))


@unheard
async def leave_of_a_made_up_worker(_store: Store) -> Call:
    return lambda store: store.attempts.leave(ids.new_id())


@unheard
async def claim_by_a_made_up_worker_at_made_up_queues(_store: Store) -> Call:
    return lambda store: store.attempts.claim(ClaimRequest(ids.new_id(), [ids.new_id()], 5, "boot:1"))


@unheard
async def end_of_an_unknown_claim_request(_store: Store) -> Call:
    return lambda store: store.attempts.claim(ClaimRequest(ids.new_id(), [ids.new_id()], 0, "boot:1"))


@unheard
async def release_of_a_made_up_job(_store: Store) -> Call:
    return lambda store: store.attempts.release([(ids.new_id(), 1), (ids.new_id(), "always")])


@unheard
async def beat_for_a_made_up_job(_store: Store) -> Call:
    return lambda store: store.attempts.beat(ids.new_id(), "always")


@unheard
async def beginning_of_a_made_up_job(_store: Store) -> Call:
    return lambda store: store.attempts.begin(ids.new_id(), 1)


@unheard
async def output_of_a_made_up_job(_store: Store) -> Call:
    patch = OutputPatch(0, 4, b"text", "1")
    return lambda store: store.attempts.write_output([(ids.new_id(), 1, patch), (ids.new_id(), "safe", patch)])


@unheard
async def end_of_a_made_up_job(_store: Store) -> Call:
    return lambda store: store.attempts.finish([Result(ids.new_id(), 1, Outcome(None, 0), OutputPatch(0, 4, b"text"))])


@unheard
async def end_under_a_fence_that_is_not_the_attempt_s(store: Store) -> Call:
    await store.submit([new_job()])
    [held] = await claim(store)
    result = Result(held.id, held.fence - 1, Outcome(None, 0, result="1"), OutputPatch(0, 4, b"text"))
    return lambda store: store.attempts.finish([result])


@unheard
async def heartbeat_that_has_lost_everything(store: Store) -> Call:
    await store.attempts.heartbeat(WORKER, [])
    return lambda store: store.attempts.heartbeat(WORKER, [(ids.new_id(), 1)])


async def keys_of(bench: Bench) -> set[bytes]:
    return {name async for name in bench.client.scan_iter(f"{bench.keys.prefix}*", count=1000)}


async def told(bench: Bench) -> int:
    return int(await bench.client.xlen(bench.keys.events))


@pytest.mark.parametrize("kind", REFUSED)
async def test_what_is_refused_leaves_nothing(bench: Bench, kind: str) -> None:
    store = bench.store()
    prepare, error = REFUSED[kind]
    call = await prepare(store)
    before = await keys_of(bench), await told(bench)
    for _ in range(AGAIN):
        with pytest.raises(error):
            await call(store)
    assert (await keys_of(bench), await told(bench)) == before


@pytest.mark.parametrize("kind", UNHEARD)
async def test_what_changes_nothing_leaves_nothing(bench: Bench, kind: str) -> None:
    store = bench.store()
    call = await UNHEARD[kind](store)
    await call(store)  # an idempotency entry
    before = await keys_of(bench)
    for _ in range(AGAIN):
        await call(store)
    assert await keys_of(bench) == before


async def test_a_parked_request_that_was_given_up_leaves_its_record_for_a_while_and_nothing_at_its_queue(
    bench: Bench,
) -> None:
    """An older copy of it that comes late is overtaken as long as the record is there."""
    store = bench.store()
    before = await keys_of(bench)
    request = ClaimRequest("pod", ["made-up"], 5, "boot:1", park_ms=60_000)
    assert (await store.attempts.claim(request)).parked
    await store.attempts.claim(replace(request, limit=0))
    [record] = await keys_of(bench) - before
    assert record.endswith(b"worker:pod:claim")
    assert 0 < await bench.client.pttl(record) <= 60_000
