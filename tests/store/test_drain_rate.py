"""How fast queues drain, and what that tells who is refused: when to come back."""

from collections.abc import Callable
from typing import Any

import pytest

from reaper.reaper import Reaper
from tests.builders import SUCCESS, claim, jobs, new_job, submit
from tests.queue_limits import limited, refused
from tests.servers import Bench
from workron.models import Result
from workron.settings import Settings
from workron.store import Store
from workron.store.policy import Policy


async def drain(store: Store, number: int) -> None:
    for got in await claim(store, limit=number):
        await store.attempts.finish([Result(got.id, got.fence, SUCCESS)], worker="w1")


@pytest.fixture
def a_second_later(bench: Bench) -> Callable[[], Any]:
    """Makes the last measurement a second old, however long it took to get here."""

    async def shift() -> None:
        seconds, micros = await bench.client.time()
        await bench.client.hset(bench.keys.meta, "rate_at", seconds * 1000 + micros // 1000 - 1000)

    return shift


async def test_a_refused_submission_may_return_when_the_excess_has_ended(
    store: Store, a_second_later: Callable[[], Any]
) -> None:
    await submit(store, *jobs(60))
    await store.maintenance.measure()
    await drain(store, 10)
    await a_second_later()
    await store.maintenance.measure()
    await limited(store, 50)
    error = await refused(store, *jobs(30))
    assert error.retry_after_s == pytest.approx(3.0, rel=0.5)
    assert (await refused(store, new_job())).retry_after_s == 1.0
    assert "end per second" in str(error)


async def test_the_rate_of_all_queues_answers_the_total(store: Store, a_second_later: Callable[[], Any]) -> None:
    await submit(store, *jobs(20), *jobs(20, queue="other"))
    await store.maintenance.measure()
    await drain(store, 10)
    await a_second_later()
    await store.maintenance.measure()
    await store.limit_all(Settings(max_pending_total=30))
    error = await refused(store, *jobs(20))
    assert error.retry_after_s == pytest.approx(2.0, rel=0.5)


async def test_a_rate_follows_what_happens_and_falls_to_nothing(
    bench: Bench, a_second_later: Callable[[], Any]
) -> None:
    store = bench.store()
    await submit(store, *jobs(50))
    await store.maintenance.measure()
    await drain(store, 20)
    await a_second_later()
    await store.maintenance.measure()
    rates = [float(await bench.client.hget(bench.keys.queue("default"), "rate"))]
    for _ in range(3):
        await bench.client.hincrby(bench.keys.meta, "rate_at", -20_000)
        await store.maintenance.measure()
        rates.append(float(await bench.client.hget(bench.keys.queue("default"), "rate")))
    assert rates == sorted(rates, reverse=True)
    assert rates[1] > rates[0] / 10  # one quiet pass does not make it nothing
    assert rates[0] == pytest.approx(20, rel=0.5)
    assert rates[-1] < rates[0] / 10


async def test_sweeping_finished_jobs_does_not_look_like_a_standstill(
    bench: Bench, a_second_later: Callable[[], Any]
) -> None:
    store = bench.store(Policy(lease_ms=300, pass_ms=100, retention_done_ms=0))
    await submit(store, *jobs(50))
    await store.maintenance.measure()
    await drain(store, 20)
    await store.maintenance.sweep()
    await a_second_later()
    await store.maintenance.measure()
    assert float(await bench.client.hget(bench.keys.queue("default"), "rate")) == pytest.approx(20, rel=0.5)


async def test_when_nothing_drains_the_refusal_says_so(store: Store, a_second_later: Callable[[], Any]) -> None:
    await limited(store, 1)
    await submit(store, new_job())
    unknown = await refused(store, new_job())
    assert (unknown.rate, unknown.retry_after_s) == (None, 5.0)
    await store.maintenance.measure()
    await a_second_later()
    await store.maintenance.measure()
    still = await refused(store, new_job())
    assert (still.rate, still.retry_after_s) == (0.0, 60.0)
    assert "none has ended recently" in str(still)


async def test_an_outdated_rate_is_unknown(bench: Bench, a_second_later: Callable[[], Any]) -> None:
    store = await limited(bench.store(), 1)
    await submit(store, new_job())
    await store.maintenance.measure()
    await a_second_later()
    await store.maintenance.measure()
    await bench.client.hincrby(bench.keys.meta, "rate_at", -61_000)
    assert (await refused(store, new_job())).rate is None


async def test_a_submission_larger_than_the_limit_is_refused_as_never_fitting(store: Store) -> None:
    await limited(store, 2)
    assert "can never fit" in str(await refused(store, *jobs(3)))


async def test_only_one_pass_in_a_second_measures(bench: Bench, a_second_later: Callable[[], Any]) -> None:
    one, other = bench.store(), bench.store()
    await submit(one, *jobs(20))
    await one.maintenance.measure()
    await drain(one, 10)
    await other.maintenance.measure()
    assert await bench.client.hget(bench.keys.queue("default"), "rate") is None
    await a_second_later()
    await other.maintenance.measure()
    assert float(await bench.client.hget(bench.keys.queue("default"), "rate")) > 0


async def test_more_queues_than_one_call_may_look_at_are_measured_in_a_round(
    bench: Bench, a_second_later: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workron.store.maintenance.MEASURED", 2)
    store = bench.store()
    names = [f"q{number}" for number in range(5)]
    await submit(store, *(new_job(queue=name) for name in names))
    for _ in range(3):
        await a_second_later()
        await store.maintenance.measure()
    await bench.client.hincrby(bench.keys.meta, "rate_at", -10_000)
    for got in await claim(store, queues=names, limit=5):
        await store.attempts.finish([Result(got.id, got.fence, SUCCESS)], worker="w1")
    began = int((await bench.client.hget(bench.keys.meta, "measuring")).split()[0])
    await bench.client.hset(bench.keys.meta, "measuring", f"{began - 10_000} 0 0 ")
    for _ in range(3):
        await a_second_later()
        await store.maintenance.measure()
    assert float(await bench.client.hget(bench.keys.meta, "rate")) == pytest.approx(0.5, rel=0.5)


async def test_the_reaper_measures(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reaper.reaper.MEASURE_EVERY_S", 0.0)
    await Reaper(bench.store(), every_s=1).keep_house()
    assert await bench.client.hexists(bench.keys.meta, "rate_at")
