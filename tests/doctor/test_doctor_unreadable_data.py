"""`workron doctor` where nothing is as it should be, and what it must not stumble over."""

import pytest

from tests.builders import after, claim, finish, jobs, new_job, submit
from tests.damaged_namespace import Patient
from tests.servers import Bench
from workron.models import Status


@pytest.mark.damaged
async def test_a_job_with_edges_whose_key_has_another_type_did_not_let_the_doctor_finish(bench: Bench) -> None:
    patient = await Patient(bench).build()
    await bench.client.set(bench.keys.job(patient.child), "x")
    assert "wrong-type" in await patient.faults()
    assert await patient.faults(rebuild=True) == {}
    await patient.run_to_the_end()


@pytest.mark.damaged
async def test_a_job_in_no_queue_did_not_let_the_doctor_finish(bench: Bench) -> None:
    patient = await Patient(bench).build()
    await bench.client.hset(bench.keys.job(patient.done), "queue", "")
    assert (await patient.faults())["damaged"] == f"job {patient.done}"


@pytest.mark.damaged
async def test_tasks_whose_array_is_gone_are_not_counted_against_it(bench: Bench) -> None:
    patient = await Patient(bench).build()
    await bench.client.delete(bench.keys.job(patient.array.id))
    await patient.faults(rebuild=True)
    assert await patient.faults() == {}


@pytest.mark.damaged
async def test_of_a_job_with_many_dependencies_one_that_is_not_waited_for_is_found(bench: Bench) -> None:
    store = bench.store()
    parents = await submit(store, *jobs(30))
    (child,) = await submit(store, new_job(depends_on=after(*parents)))
    for one in await claim(store, limit=25):
        await finish(store, one)
    await bench.client.hdel(bench.keys.parents(child), parents[27])
    assert [fault.code for fault in (await store.doctor.examine()).faults] == ["wrong-edge"]
    assert (await store.doctor.examine(rebuild=True)).faults == ()
    for one in await claim(store, limit=4):
        await finish(store, one)
    assert (await store.job(child)).status is Status.BLOCKED
    (last,) = await claim(store)
    await finish(store, last)
    assert [one.id for one in await claim(store)] == [child]


@pytest.mark.damaged
async def test_a_long_finding_is_reported_with_its_beginning(bench: Bench) -> None:
    store = bench.store()
    await bench.client.set(bench.keys.unique("k"), "x" * 3_000_000)
    await bench.client.set(f"{bench.keys.prefix}idempotency:a:b", "x" * 3_000_000)
    await bench.client.zadd(bench.keys.leases, {"": 1})
    found = (await store.doctor.examine()).faults
    assert {"surplus", "malformed"} <= {fault.code for fault in found}
    assert max(len(fault.detail) for fault in found) <= 200
    assert {fault.code for fault in (await store.doctor.examine(rebuild=True)).faults} == set()


@pytest.mark.damaged
async def test_a_schedule_that_has_forgotten_its_next_time_has_the_same_again(bench: Bench) -> None:
    patient = await Patient(bench).build()
    key = bench.keys.schedule("nightly")
    before = await bench.client.hget(key, "next")
    await bench.client.hdel(key, "next")
    await bench.client.zrem(bench.keys.schedules_due, "nightly")
    assert await patient.faults() == {"missing": "schedule nightly"}
    assert await patient.faults(rebuild=True) == {}
    assert await bench.client.hget(key, "next") == before
    assert await bench.client.zscore(bench.keys.schedules_due, "nightly") == int(before)


@pytest.mark.damaged
@pytest.mark.parametrize(
    ("field", "value"), [("cron", "x"), ("dst", "often"), ("timezone", "Nowhere"), ("next", "soon")]
)
async def test_an_unreadable_schedule_is_reported(bench: Bench, field: str, value: str) -> None:
    patient = await Patient(bench).build()
    await bench.client.hset(bench.keys.schedule("nightly"), field, value)
    assert (await patient.faults(rebuild=True)).get("unreadable") == "schedule nightly"
