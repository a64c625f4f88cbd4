"""What reapers look at all the time, and mend without being asked."""

from contextlib import suppress

import pytest

from reaper import reaper as reaping
from reaper.reaper import Reaper
from tests.builders import jobs, new_job, submit
from tests.consistency import Audit
from tests.counting import commands_inside
from tests.damaged_namespace import Patient
from tests.servers import Bench
from workron.doctor import spot_check
from workron.errors import StoreBroken


async def test_a_running_job_without_a_lease_gets_one(bench: Bench) -> None:
    patient = await Patient(bench).build()
    await bench.client.zrem(bench.keys.leases, patient.running)
    (fault,) = await bench.store().spot_check.look()
    assert (fault.code, fault.about, fault.mended) == ("no-lease", f"job {patient.running}", True)
    assert await bench.store().spot_check.look() == []
    await patient.run_to_the_end()


async def test_a_walk_over_dependents_that_was_forgotten_goes_on(bench: Bench) -> None:
    patient = await Patient(bench).build()
    await bench.client.hset(bench.keys.job(patient.running), "edge_cursor", "0")
    assert [fault.code for fault in await bench.store().spot_check.look()] == ["stuck-walk"]
    assert await bench.client.lrange(bench.keys.propagate, 0, -1) == [patient.running.encode()]
    await patient.run_to_the_end()


async def test_a_pending_job_that_is_in_no_list_is_put_into_it(bench: Bench) -> None:
    patient = await Patient(bench).build()
    await bench.client.delete(bench.keys.pending("default", 5))
    assert {fault.code for fault in await bench.store().spot_check.look()} == {"not-in-list"}
    await patient.run_to_the_end()


async def test_it_goes_round_over_all_jobs_page_by_page(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spot_check, "_CALLS", 1)
    store = bench.store()
    ids = await submit(store, *jobs(450), new_job())
    await bench.client.delete(bench.keys.pending("default", 5))
    found = [f"job {one}" for one in ids]
    pages = []
    while found:
        page = [fault.about for fault in await store.spot_check.look()]
        found = [one for one in found if one not in page]
        pages.append(len(page))
    assert sum(pages) == 451, "none is mended twice"
    assert max(pages) < 451
    assert await store.spot_check.look() == []


async def test_each_job_of_a_queue_was_looked_up_in_what_holds_for_the_whole_queue(bench: Bench) -> None:
    await bench.client.rpush(bench.keys.pending("default", 5), *(f"gone-{at}" for at in range(1_001)))
    store = bench.store()
    await submit(store, *jobs(300))
    assert await store.spot_check.look() == []
    counted = await commands_inside(bench, store.spot_check.look)
    assert counted["type"] == 0
    for command in ("llen", "lpos"):
        assert counted[command] <= counted["evalsha"], command
    assert counted["zscore"] <= 300 + 2 * counted["evalsha"], "one per job, and two per queue and call"


@pytest.mark.parametrize("index", ["jobs", "queue:default:done", "queue:default:blocked", "due"])
async def test_jobs_that_stood_in_no_index_were_never_seen_again(bench: Bench, index: str) -> None:
    patient = await Patient(bench).build()
    before = await bench.client.zrange(patient.key(index), 0, -1, withscores=True)
    await bench.client.delete(patient.key(index))
    if index == "due":
        await bench.client.zadd(patient.key(index), {one: at for one, at in before if one != patient.later.encode()})
    code = "not-due" if index == "due" else "not-listed"
    assert {fault.code for fault in await bench.store().spot_check.look()} == {code}
    assert await bench.client.zrange(patient.key(index), 0, -1, withscores=True) == before
    await patient.run_to_the_end()


async def test_the_reaper_mends_and_says_so(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    patient = await Patient(bench).build()
    await bench.client.zrem(bench.keys.leases, patient.running)
    monkeypatch.setattr(reaping, "SPOT_CHECK_EVERY_S", 0.0)
    said: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(reaping.log, "warning", lambda message, **fields: said.append((message, fields)))
    await Reaper(bench.store(), every_s=1).keep_house()
    fields = {"fault": "no-lease", "about": f"job {patient.running}", "detail": "w1", "others": 0}
    assert said == [("fault repaired", fields)]
    await patient.run_to_the_end()
    assert await Audit(bench.client, bench.keys).problems() == []


@pytest.mark.damaged
async def test_a_fault_that_the_reaper_cannot_repair_is_reported_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = await submit(bench.store(), new_job())
    await bench.client.hset(bench.keys.job(job), "status", "whatever")
    monkeypatch.setattr(reaping, "SPOT_CHECK_EVERY_S", 0.0)
    said: list[str] = []
    monkeypatch.setattr(reaping.log, "warning", lambda message, **fields: said.append(fields["about"]))
    reaper = Reaper(bench.store(), every_s=1)
    for _ in range(3):
        await reaper.keep_house()
    assert said == [f"job {job}"]


@pytest.mark.damaged
async def test_one_broken_key_that_every_job_needs_is_one_line(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await submit(bench.store(), *(new_job() for _ in range(20)))
    await bench.client.set(bench.keys.queues, "no set")
    monkeypatch.setattr(reaping, "SPOT_CHECK_EVERY_S", 0.0)
    said: list[int] = []
    monkeypatch.setattr(reaping.log, "warning", lambda message, **fields: said.append(fields.get("others", 0)))
    reaper = Reaper(bench.store(), every_s=1)
    with suppress(StoreBroken):  # the other work of a pass
        await reaper.keep_house()
    assert max(said) == 19
