"""`workron doctor`: exactly what was broken is found, and mended so that all jobs end."""

from collections.abc import Awaitable, Callable

import pytest

from tests.array_jobs import tasks_of
from tests.builders import after, claim, jobs, new_job, submit
from tests.consistency import Audit
from tests.damaged_namespace import Patient
from tests.servers import Bench
from workron.doctor import KINDS
from workron.models import Status

Break = Callable[[Patient], Awaitable[object]]


def removed_from(index: str, job: str) -> Break:
    async def remove(patient: Patient) -> None:
        assert await patient.redis.zrem(patient.key(index), getattr(patient, job))

    return remove


def added_to(index: str, member: str) -> Break:
    async def add(patient: Patient) -> None:
        assert await patient.redis.zadd(patient.key(index), {getattr(patient, member, member): 5})

    return add


def field(key: str, name: str, value: str | None) -> Break:
    """Set, or delete, a field of a hash; `{job}` in the key is an attribute of the patient."""

    async def change(patient: Patient) -> None:
        hash_key = patient.key(key.format_map(vars(patient)))
        if value is None:
            assert await patient.redis.hdel(hash_key, name)
        else:
            await patient.redis.hset(hash_key, name, value.format_map(vars(patient)))

    return change


def written(key: str, value: str) -> Break:
    async def write(patient: Patient) -> None:
        await patient.redis.set(patient.key(key.format_map(vars(patient))), value.format_map(vars(patient)))

    return write


def deleted(key: str) -> Break:
    async def delete(patient: Patient) -> None:
        assert await patient.redis.delete(patient.key(key.format_map(vars(patient))))

    return delete


async def out_of_its_list(patient: Patient) -> None:
    assert await patient.redis.lrem(patient.keys.pending("default", 5), 1, patient.pending)


async def out_of_its_line(patient: Patient) -> None:
    assert await patient.redis.zrem(patient.keys.in_line("k", "default"), patient.first_held)
    await patient.redis.hincrby(patient.keys.queue("default"), "held", -1)
    await patient.redis.delete(f"{patient.keys.concurrency('k')}:queues", patient.keys.concurrency_keys("default"))


async def told_nobody(patient: Patient) -> None:
    """End a job without its child being told: the list of those to tell is gone."""
    job = patient.keys.job(patient.running)
    await patient.redis.hset(job, "edge_cursor", "0")


async def ended_without_telling(patient: Patient) -> None:
    edges = f"{patient.keys.job(patient.child)}:parents"
    await patient.redis.delete(f"{patient.keys.job(patient.child)}:parents")
    await patient.redis.hset(edges, patient.done, "done")
    await patient.redis.rpush(f"{patient.keys.job(patient.done)}:children", f"done:{patient.child}")
    await patient.redis.hset(patient.keys.job(patient.done), "children", "1")
    await patient.redis.delete(f"{patient.keys.job(patient.running)}:children")


async def not_told_of_one_of_two(patient: Patient) -> None:
    child = new_job(depends_on=after(patient.done, patient.pending))
    await submit(patient.store, child)
    assert await patient.redis.hset(patient.keys.parents(child.id), patient.done, "done")


async def waits_for_one_that_is_gone(patient: Patient) -> None:
    edges = f"{patient.keys.job(patient.child)}:parents"
    await patient.redis.delete(edges)
    await patient.redis.hset(edges, "0" * 22, "done")
    await patient.redis.hset(patient.keys.job(patient.child), "depends_on", "0" * 22)


async def does_not_wait_for_one_of_two(patient: Patient) -> None:
    child = new_job(depends_on=after(patient.pending, patient.slot))
    await submit(patient.store, child)
    assert await patient.redis.hdel(f"{patient.keys.job(child.id)}:parents", patient.slot)


async def out_of_its_place(patient: Patient) -> None:
    await patient.redis.zadd(patient.keys.in_line("k", "default"), {patient.first_held: 2**50})


async def schedules_that_are_never_due(patient: Patient) -> None:
    await patient.redis.zadd(patient.keys.schedules_due, {"nightly": 2**50})


async def by_another_order(patient: Patient) -> None:
    await patient.redis.zadd(patient.keys.jobs, {patient.pending: 7})


async def hostile_queue(patient: Patient) -> None:
    await patient.redis.zadd(patient.keys.queues, {b"\xff b": 0})


async def hostile_turn(patient: Patient) -> None:
    await patient.redis.zadd(f"{patient.keys.array(patient.array.id)}:turns", {b"\xff b\n": 5})


async def hostile_edges(patient: Patient) -> None:
    """An entry that names no job among a job's dependents stopped everybody who went over them."""
    await patient.redis.lpush(f"{patient.keys.job(patient.running)}:children", b"\xff b\n")
    await patient.redis.hset(f"{patient.keys.job(patient.child)}:parents", b"\xff b\n", "x")


async def two_tasks_ended_at_once(patient: Patient) -> None:
    """Say that all tasks of the array have ended, as a script does that breaks before the array itself."""
    await patient.redis.hset(patient.keys.job(patient.array.id), mapping={"status": "done", "finished_at": "5"})
    for queue in ("default", None):
        await patient.redis.zrem(patient.keys.index(queue, "blocked"), patient.array.id)
        await patient.redis.zadd(patient.keys.index(queue, "done"), {patient.array.id: 5})
    await patient.redis.hincrby(patient.keys.queue("default"), "blocked", -1)
    await patient.redis.hincrby(patient.keys.queue("default"), "done", 1)
    await patient.redis.hincrby(patient.keys.meta, "waiting", -1)


async def final_not_started(patient: Patient) -> None:
    """All others have ended, and the final job still waits."""
    (other,) = [one.id for one in await patient.store.workflow_jobs(patient.workflow) if one.id != patient.final]
    for key in (patient.keys.job(other), f"{patient.keys.workflow(patient.workflow)}:jobs"):
        assert await patient.redis.delete(key)
    await patient.redis.zrem(patient.keys.jobs, other)
    for key, count in ((patient.keys.queue("default"), "pending"), (patient.keys.meta, "waiting")):
        await patient.redis.hincrby(key, count, -1)
    await patient.redis.rpush(f"{patient.keys.workflow(patient.workflow)}:jobs", patient.final)
    await patient.redis.hset(patient.keys.workflow(patient.workflow), mapping={"size": "1", "pending": "0"})


async def stop_that_nobody_goes_on_with(patient: Patient) -> None:
    await patient.redis.hset(patient.keys.workflow(patient.workflow), mapping={"stopped": "cancelled", "stop_at": "0"})


async def held_and_forgotten(patient: Patient) -> None:
    await patient.redis.hset(patient.keys.concurrency("k"), "limit", "50")


async def a_task_gone(patient: Patient) -> None:
    assert await patient.redis.delete(patient.keys.job(tasks_of(patient.array)[0]))
    await patient.redis.hincrby(patient.keys.array(patient.array.id), "pending", -1)
    await patient.redis.hincrby(patient.keys.meta, "waiting", -1)


BREAKS: list[tuple[str, Break]] = [
    ("missing", removed_from("jobs", "pending")),
    ("missing", removed_from("queue:default:done", "done")),
    ("missing", removed_from("queue:default:failed", "failed")),
    ("missing", removed_from("queue:default:blocked", "child")),
    ("missing", deleted("queues")),
    ("missing", by_another_order),
    ("missing", out_of_its_list),
    ("missing", out_of_its_line),
    ("missing", out_of_its_place),
    ("missing", removed_from("leases", "running")),
    ("missing", removed_from("concurrency:k:running", "slot")),
    ("missing", removed_from("due", "later")),
    ("missing", deleted("schedules:due")),
    ("missing", schedules_that_are_never_due),
    ("missing", field("schedule:nightly", "next", None)),
    ("missing", told_nobody),
    ("missing", stop_that_nobody_goes_on_with),
    ("wrong-edge", ended_without_telling),
    ("wrong-edge", not_told_of_one_of_two),
    ("wrong-edge", deleted("job:{running}:children")),
    ("wrong-edge", waits_for_one_that_is_gone),
    ("wrong-edge", does_not_wait_for_one_of_two),
    ("wrong-edge", field("job:{child}", "broken", "1")),
    ("wrong-edge", deleted("job:{child}:parents")),
    ("stuck", final_not_started),
    ("stuck", two_tasks_ended_at_once),
    ("miscounted", a_task_gone),
    ("miscounted", deleted("array:{array.id}")),
    ("wrong-type", written("array:{array.id}", "x")),
    ("surplus", hostile_queue),
    ("surplus", hostile_turn),
    ("surplus", lambda patient: patient.redis.sadd(patient.keys.array_skips(patient.array.id), "x")),
    ("surplus", added_to("leases", "pending")),
    ("surplus", added_to("due", "done")),
    ("surplus", added_to("due", "deadline nobody")),
    ("surplus", added_to("queue:default:done", "failed")),
    ("surplus", added_to("jobs", "nobody")),
    ("surplus", added_to("schedules", "nobody")),
    ("surplus", added_to("concurrency:k:waiting:default", "done")),
    ("surplus", added_to("concurrency:k:running", "done")),
    ("missing", held_and_forgotten),
    ("missing", field("concurrency:k", "limit", None)),
    ("surplus", written("unique:other", "{done} 1")),
    ("surplus", written("job:0000000000000000000000:output:5", "what was said")),
    ("surplus", written("job:{done}:output:5", "what was said")),
    ("no-ttl", written("unique:u", "{unique} 1")),
    ("no-ttl", written("idempotency:a:b", "print {done} 1 -")),
    ("wrong-type", written("queue:default:cancelled", "x")),
    ("wrong-type", written("job:{running}", "x")),
    ("miscounted", field("queue:default", "pending", "77")),
    ("miscounted", field("queue:default", "done", "77")),
    ("miscounted", field("workflow:{workflow}", "pending", "5")),
    ("miscounted", field("concurrency:k", "jobs", "9")),
    ("miscounted", field("queue:default", "held", "9")),
    ("malformed", field("queue:default", "max_running", "many")),
    ("malformed", written("idempotency:a:c", "what?")),
    ("malformed", written("idempotency:a:c", "")),
    ("miscounted", field("meta", "waiting", "77")),
    ("malformed", field("meta", "waiting", "many")),
    ("malformed", field("meta", "fence", str(2**60))),
    ("malformed", field("concurrency:k", "jobs", "many")),
    ("malformed", field("concurrency:k", "front", str(2**60))),
    ("malformed", field("workflow:{workflow}", "pending", "many")),
    ("miscounted", field("workflow:{workflow}", "size", "many")),
    ("miscounted", field("workflow:{workflow}", "size", "3")),
    ("miscounted", field("workflow:{workflow}", "done", "5")),
    ("malformed", field("workflow:{workflow}", "final", "{done}")),
    ("miscounted", field("array:{array.id}", "size", "many")),
    ("miscounted", field("array:{array.id}", "size", None)),
    ("miscounted", field("array:{array.id}", "made", "0")),
    ("miscounted", field("array:{array.id}", "made", str(2**60))),
    ("miscounted", field("array:{array.id}", "pending", "many")),
    ("miscounted", field("array:{array.id}", "done", "many")),
    ("miscounted", field("array:{array.id}", "parallel", "0")),
    ("missing", field("array:{array.id}", "walk", "round")),
    ("wrong-edge", hostile_edges),
    ("missing", field("queue:default", "max_running", "2")),
    ("missing", field("meta", "fence", "5")),
    ("quarantined", lambda patient: patient.redis.sadd(patient.keys.quarantine, patient.done)),
]


@pytest.mark.damaged
@pytest.mark.parametrize(("code", "damage"), BREAKS, ids=[f"{n}-{code}" for n, (code, _) in enumerate(BREAKS)])
async def test_what_was_broken_is_found_and_mended_and_all_jobs_end(bench: Bench, code: str, damage: Break) -> None:
    patient = await Patient(bench).build()
    assert await patient.faults() == {}
    await damage(patient)
    assert code in await patient.faults()
    assert code in await patient.faults(), "looking has mended it"
    assert await patient.faults(rebuild=True) == {}
    assert await patient.faults() == {}
    await patient.run_to_the_end()
    assert await patient.faults() == {}
    assert await Audit(bench.client, bench.keys).problems() == []


def test_each_fault_that_is_mended_has_a_test() -> None:
    mended = {code for code, kind in KINDS.items() if not kind.by_hand}
    assert mended == {code for code, _ in BREAKS}


BY_HAND: list[tuple[str, Break]] = [
    ("damaged", field("job:{done}", "status", "whatever")),
    ("lost", deleted("workflow:{workflow}")),
    ("lost", field("job:{done}", "batch", "0" * 22)),
    ("foreign", written("something", "else")),
]


@pytest.mark.damaged
@pytest.mark.parametrize(("code", "damage"), BY_HAND, ids=[f"{n}-{code}" for n, (code, _) in enumerate(BY_HAND)])
async def test_damage_without_a_known_repair_is_found_and_left_alone(bench: Bench, code: str, damage: Break) -> None:
    patient = await Patient(bench).build()
    await damage(patient)
    assert code in await patient.faults()
    assert code in await patient.faults(rebuild=True)
    assert KINDS[code].by_hand


@pytest.mark.damaged
@pytest.mark.large
async def test_a_list_that_is_long_is_searched_to_its_end(bench: Bench) -> None:
    store = bench.store()
    ids = [job.id for job in jobs(2500)]
    await store.submit(jobs(2500, priority=9))
    await store.submit([new_job(id=one) for one in ids])
    assert await bench.client.lrem(bench.keys.pending("default", 5), 1, ids[1200])
    (fault,) = (await store.doctor.examine()).faults
    assert (fault.code, fault.about) == ("missing", f"job {ids[1200]}")
    report = await store.doctor.examine(rebuild=True)
    assert (len(report.mended), report.faults) == (1, ())
    assert await bench.client.lpos(bench.keys.pending("default", 5), ids[1200]) is not None


@pytest.mark.damaged
async def test_edges_of_a_job_with_very_many_are_checked(bench: Bench) -> None:
    store = bench.store()
    parents = await submit(store, *jobs(120))
    child = new_job(depends_on=after(*parents))
    await submit(store, child)
    assert (await store.doctor.examine()).faults == ()
    await bench.client.delete(f"{bench.keys.job(parents[77])}:children")
    assert [fault.code for fault in (await store.doctor.examine()).faults] == ["wrong-edge"]
    assert (await store.doctor.examine(rebuild=True)).faults == ()


@pytest.mark.damaged
async def test_a_broken_index_is_rebuilt_from_the_jobs(bench: Bench) -> None:
    store = bench.store()
    ids = await submit(store, *jobs(300))
    for key in (bench.keys.jobs, bench.keys.leases, bench.keys.pending("default", 5), bench.keys.queue("default")):
        await bench.client.set(key, "what?")
    report = await store.doctor.examine(rebuild=True)
    assert report.faults == ()
    assert (await store.queue("default")).counts[Status.PENDING] == 300
    assert {one.id for one in await claim(store, limit=150)} <= set(ids)
    assert await bench.client.get(f"{bench.keys.prefix}set-aside:jobs") == b"what?"
