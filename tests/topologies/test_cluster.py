"""A cluster of three primaries, and our slot on its way from one to the next."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders import claim, finish, new_job, submit
from tests.chaos.data_servers import KEYS, NAMESPACE
from tests.chaos.deployment import Size
from tests.chaos.harness import Run
from tests.chaos.topologies import Cluster
from tests.conftest import WaitUntil
from tests.topologies.conftest import Placed
from tests.topologies.test_sentinel import listen, publish, wait_in_line
from workron.errors import StoreUnavailable
from workron.models import Status

pytestmark = [pytest.mark.chaos]
SMALL = Size(apis=2, workers=2, http_workers=1, reapers=1)
MIGRATION_S = 31.0
in_cluster = pytest.mark.parametrize("placed", [Cluster], indirect=True)


@in_cluster
async def test_calls_follow_the_slot_to_another_node_and_on(placed: Placed, wait_until: WaitUntil) -> None:
    store = placed.store()
    heard: list[str] = []
    listening = asyncio.create_task(listen(placed.connection(), heard))
    async with placed.connection().own() as own:
        waiting = asyncio.create_task(wait_in_line(own))
        await wait_until(lambda: publish(placed.ground.primary, heard))
        for _ in range(3):
            (job_id,) = await submit(store, new_job())
            await placed.ground.move()
            (got,) = await claim(store)
            await finish(store, got)
            assert (await store.job(job_id)).status is Status.DONE
        heard.clear()
        await wait_until(lambda: publish(placed.ground.primary, heard))
        await placed.ground.primary.ask("RPUSH", f"{KEYS.prefix}line", "news")
        assert (await asyncio.wait_for(waiting, 20))[1] == b"news"
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


@in_cluster
async def test_while_the_slot_moves_a_call_waits_and_is_done_once(placed: Placed) -> None:
    ground = placed.ground
    assert isinstance(ground, Cluster)
    store, impatient = placed.store(), placed.store(budget_s=0.5)
    made = await submit(store, *(new_job() for _ in range(20)))
    await ground.begin_move()
    with pytest.raises(StoreUnavailable, match="can't be reached"):
        await submit(impatient, new_job())
    claiming = asyncio.create_task(claim(store, limit=20))
    submitting = asyncio.create_task(submit(store, new_job()))
    await asyncio.sleep(1)
    assert not claiming.done()
    assert not submitting.done()
    await ground.finish_move()
    assert sorted(got.id for got in await claiming) == sorted(made)
    assert len(await submitting) == 1
    assert await ground.primary.ask("ZCARD", KEYS.jobs) == 21


@in_cluster
async def test_a_result_that_comes_while_the_slot_moves_for_half_a_minute_is_kept(
    placed: Placed, tmp_path: Path, wait_until: WaitUntil
) -> None:
    ground = placed.ground
    assert isinstance(ground, Cluster)
    store = placed.store()
    env = {**os.environ, "WORKRON_REDIS": ground.url, "WORKRON_NAMESPACE": NAMESPACE, "WORKRON_LEASE": "90s"}
    command = [sys.executable, "-m", "workron", "worker", "--slots", "1"]
    with subprocess.Popen(command, env=env, cwd=tmp_path) as worker:  # noqa: ASYNC220
        try:
            ran = tmp_path / "ran"
            (job_id,) = await submit(store, new_job(command=f"sleep 0.5; echo x >> {ran}"))
            await wait_until(lambda: store_says(placed, job_id, b"running"))
            await ground.begin_move()
            await wait_until(ran.exists)
            await asyncio.sleep(MIGRATION_S)
            assert await ground.primary.ask("HGET", KEYS.job(job_id), "status") == b"running"
            await ground.finish_move()
            await wait_until(lambda: store_says(placed, job_id, b"done"))
            assert ran.read_text() == "x\n"
        finally:
            worker.terminate()


async def store_says(placed: Placed, job_id: str, status: bytes) -> bool:
    return bool(await placed.ground.primary.ask("HGET", KEYS.job(job_id), "status") == status)


async def test_migrations_under_load_lose_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path, seed=6, seconds=15, topology="cluster", kinds=("move", "kill-server"), size=SMALL, pace_s=5)
    account = await run.run()
    print(account.table())
    assert account.wrong == {}
    assert account.faults["move"] >= 1
    assert account.lost_in_rollback == 0
