"""The checks in bulk find what is certainly right: they agree with the rules, and ask about the others one by one."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from tests.builders import claim, finish, jobs, new_job, submit
from tests.damaged_namespace import Patient
from tests.servers import Bench
from workron.doctor.bulk import Bulk
from workron.doctor.reading import Reader


def bulk_of(bench: Bench) -> Bulk:
    store = bench.store()
    return Bulk(bench.keys, store.scripts, Reader(store.connection, bench.keys, store.scripts))


async def test_simple_jobs_in_their_places_are_right(bench: Bench) -> None:
    patient = await Patient(bench).build()
    simple = [patient.done, patient.failed, patient.pending, patient.later]
    others = [patient.running, patient.slot, patient.child, patient.unique, patient.timed, patient.final]
    assert await bulk_of(bench).jobs([*simple, *others]) == {*others}


Hurt = Callable[[Patient], Awaitable[object]]
HURTS: list[tuple[str, Hurt]] = [
    ("done", lambda one: one.redis.zrem(one.keys.jobs, one.done)),
    ("done", lambda one: one.redis.zadd(one.keys.jobs, {one.done: 7})),
    ("done", lambda one: one.redis.zrem(one.keys.index("default", "done"), one.done)),
    ("done", lambda one: one.redis.zrem(one.keys.index(None, "done"), one.done)),
    ("done", lambda one: one.redis.hset(one.keys.job(one.done), "fence", "many")),
    ("done", lambda one: one.redis.hset(one.keys.job(one.done), "queue", "a b")),
    ("done", lambda one: one.redis.hset(one.keys.job(one.done), "priority", "10")),
    ("done", lambda one: one.redis.hset(one.keys.job(one.done), "edge_cursor", "0")),
    ("done", lambda one: one.redis.hset(one.keys.job(one.done), "batch", "0" * 22)),
    ("done", lambda one: one.redis.hset(one.keys.job(one.done), "status", "whatever")),
    ("done", lambda one: one.redis.delete(one.keys.job(one.done))),
    ("done", lambda one: one.redis.set(one.keys.job(one.done), "x")),
    ("done", lambda one: one.redis.set(one.keys.index(None, "done"), "x")),
    ("later", lambda one: one.redis.zrem(one.keys.due, one.later)),
    ("later", lambda one: one.redis.zadd(one.keys.due, {one.later: 2**50})),
    ("later", lambda one: one.redis.hset(one.keys.job(one.later), "run_at", "soon")),
    ("pending", lambda one: one.redis.zrem(one.keys.queues, "default")),
    ("pending", lambda one: one.redis.zrem(one.keys.pending_queues, "default")),
    ("pending", lambda one: one.redis.lrem(one.keys.pending("default", 5), 1, one.pending)),
    ("pending", lambda one: one.redis.delete(one.keys.pending("default", 5))),
]


@pytest.mark.damaged
@pytest.mark.parametrize(("job", "hurt"), HURTS, ids=[f"{at}-{job}" for at, (job, _) in enumerate(HURTS)])
async def test_a_simple_job_that_is_not_in_a_place_is_checked_by_the_rules(bench: Bench, job: str, hurt: Hurt) -> None:
    patient = await Patient(bench).build()
    one = getattr(patient, job)
    assert await bulk_of(bench).jobs([one]) == set()
    await hurt(patient)
    assert await bulk_of(bench).jobs([one]) == {one}


async def test_members_of_an_index_are_right_if_their_jobs_say_so(bench: Bench) -> None:
    patient = await Patient(bench).build()
    bulk, done, pending = bulk_of(bench), patient.done, patient.pending
    for index in ("jobs", "jobs:done", "queue:default:done"):
        assert await bulk.members(index, [done]) == []
    for index in ("jobs:failed", "queue:default:failed", "queue:other:done", "leases", "due"):
        assert await bulk.members(index, [done]) == [done]
    assert await bulk.members("leases", [patient.running]) == []
    assert await bulk.members("due", [patient.later, f"deadline {patient.timed}"]) == [f"deadline {patient.timed}"]
    assert await bulk.members("jobs", [pending, "0" * 22, "nobody"]) == ["0" * 22, "nobody"]
    assert await bulk.members("concurrency:k:running", [patient.slot]) == [patient.slot]


async def test_each_job_was_read_by_commands_of_its_own(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    store, sent = bench.store(), list[int]()
    each = store.connection.each

    async def count(commands: Sequence[Any]) -> Any:
        sent.append(len(commands))
        return await each(commands)

    monkeypatch.setattr(store.connection, "each", count)
    for number in (50, 200):
        await submit(store, *jobs(number))
        for one in await claim(store, limit=number // 2):
            await finish(store, one)
        sent.append(0)
        await store.doctor.examine()
    at = len(sent) - 1 - sent[::-1].index(0)
    assert sum(sent[at:]) - sum(sent[:at]) < 20


@pytest.mark.damaged
async def test_a_namespace_of_many_queues_and_states_counts_right(bench: Bench) -> None:
    """Jobs that are counted alike come in one row."""
    store = bench.store()
    for queue in ("a", "b"):
        await submit(store, *[new_job(queue=queue, priority=at % 9 + 1) for at in range(40)])
        for one in await claim(store, queues=[queue], limit=10):
            await finish(store, one)
    assert (await store.doctor.examine()).faults == ()
    await bench.client.hincrby(bench.keys.queue("b"), "pending", -1)
    (fault,) = (await store.doctor.examine()).faults
    assert (fault.about, fault.detail) == ("queue:b", "pending is 29, not 30")
