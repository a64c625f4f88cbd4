"""Jobs that kill their own worker, among good ones: these are all done, and those end as `worker_lost`.

`WORKRON_POISON=10000` has so many of them instead of a few: on two cores, busy with other things too, 18 minutes with
19,229 deaths of workers, of which each took 25 ms of processor time. Of 10,000 good jobs 8,518 were tried again.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.builders import claim, finish, new_job, reap_all, submit
from tests.conftest import WaitUntil
from tests.consistency import Audit
from tests.servers import QUICK, Bench
from workron.models import Job, Reason, Status
from workron.store import Store

POISONOUS: Final = int(os.environ.get("WORKRON_POISON", "20"))
GOOD: Final = max(100, POISONOUS)
WORKERS: Final = 6
WITHIN_S: Final = 60 + POISONOUS
MOST_LOST: Final = 1_000
"""So many lost workers are remembered (`lua/maintain_reap.lua`)."""
POISON: Final = "kill -9 $PPID; sleep 60"
FORKED: Final = Path(__file__).with_name("forked_workers.py")


@asynccontextmanager
async def workers_that_come_back(processes: Any, folder: Path) -> AsyncIterator[dict[str, Any]]:
    """Workers of four slots, each started again as soon as it has been killed; gives how many have died, at the end.

    All that they start has `folder` in its environment, and what it keeps in files is there.
    """
    (folder / "files").mkdir()
    processes.set(PATH=f"{os.environ['PATH']}:{folder}", TMPDIR=str(folder / "files"))
    keeper = processes.run("forked", [sys.executable, str(FORKED), str(WORKERS), "4"], stdout=subprocess.PIPE)
    account: dict[str, Any] = {}
    try:
        yield account
    finally:
        keeper.terminate()
        with keeper.stdout:
            account |= json.loads(await asyncio.to_thread(keeper.stdout.read))


@pytest.mark.chaos
@pytest.mark.timeout(WITHIN_S + 60)
async def test_jobs_that_kill_their_worker_take_no_good_one_along(
    processes: Any, bench: Bench, wait_until: WaitUntil, tmp_path: Path
) -> None:
    store = bench.store()
    processes.reaper()
    good = [new_job(command="echo good") for _ in range(GOOD)]
    poison = [new_job(command=POISON) for _ in range(POISONOUS)]
    order = good + poison
    random.Random(7).shuffle(order)  # noqa: S311
    await store.submit(order)
    began_s = time.monotonic()
    async with workers_that_come_back(processes, tmp_path) as account:
        await wait_until(lambda: all_ended(store), within_s=WITHIN_S)
        took_s = time.monotonic() - began_s
    ended = [await found(store, [job.id for job in jobs]) for jobs in (good, poison)]
    again = sum(job.attempts > 1 for job in ended[0])
    print({"took_s": round(took_s), "good_tried_again": again} | account | await left_in(bench))
    assert Counter((job.status, job.reason) for job in ended[0]) == {(Status.DONE, None): GOOD}
    assert Counter((job.status, job.reason, job.attempts) for job in ended[1]) == {
        (Status.FAILED, Reason.WORKER_LOST, 3): POISONOUS
    }
    await wait_until(lambda: not left_running(tmp_path) and not os.listdir(tmp_path / "files"))
    await wait_until(lambda: only_jobs_and_workers_are_left(bench))
    assert await Audit(bench.client, bench.keys).problems() == []
    assert not (await store.doctor.examine()).faults


async def all_ended(store: Store) -> bool:
    (queue,) = await store.queues()
    return sum(queue.counts[status] for status in (Status.DONE, Status.FAILED)) == GOOD + POISONOUS


async def found(store: Store, job_ids: list[str]) -> list[Job]:
    pages = [await store.jobs(job_ids[start : start + 500]) for start in range(0, len(job_ids), 500)]
    return [job for page in pages for job in page if job is not None]


def left_running(folder: Path) -> list[str]:
    """The command lines of processes that workers in this folder have started, or are."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
        except OSError:  # it has ended
            pass
    return found


async def left_in(bench: Bench) -> dict[str, int]:
    """How many keys there are of each kind, and the memory of the server."""
    names = [name.decode() async for name in bench.client.scan_iter(f"{bench.keys.prefix}*", count=1_000)]
    kinds = Counter(name.removeprefix(bench.keys.prefix).partition(":")[0] for name in names)
    return dict(kinds) | {"bytes": (await bench.client.info("memory"))["used_memory"]}


async def only_jobs_and_workers_are_left(bench: Bench) -> bool:
    """Whether jobs have their hash and output, the last lost workers their hash, and all else is bounded."""
    kinds = await left_in(bench)
    jobs, workers = kinds.pop("job"), kinds.pop("worker")
    del kinds["bytes"]
    return jobs <= 2 * GOOD + POISONOUS and workers <= MOST_LOST + WORKERS and sum(kinds.values()) < 20


@pytest.mark.chaos
async def test_a_worker_runs_the_last_attempt_of_a_poison_job_alone(
    processes: Any, bench: Bench, wait_until: WaitUntil, tmp_path: Any
) -> None:
    store = bench.store(QUICK)
    (suspect,) = await submit(
        store, new_job(command=f"ls {tmp_path}/runs; sleep 0.5; ls {tmp_path}/runs", max_attempts=2)
    )
    (got,) = await claim(store, worker="dies-at-once")
    (tmp_path / "runs").mkdir()
    beside = f"touch {tmp_path}/runs/$WORKRON_JOB_ID; sleep 0.2; rm {tmp_path}/runs/$WORKRON_JOB_ID"
    others = await submit(store, *(new_job(command=beside) for _ in range(20)))
    processes.worker(4)
    processes.reaper()

    async def all_done() -> bool:
        return {job.status for job in await store.jobs([suspect, *others]) if job} == {Status.DONE}

    await wait_until(all_done)
    assert (await store.job(suspect)).attempts == got.attempt + 1
    assert (await store.output(suspect)).head == b""


@pytest.mark.chaos
async def test_a_good_job_failed_because_it_waited_next_to_one_that_kills_its_worker(
    processes: Any, bench: Bench, wait_until: WaitUntil
) -> None:
    store = bench.store()
    poison, good = await submit(store, new_job(command=f"sleep 0.2; {POISON}"), new_job(max_attempts=1))
    await bench.client.hset(bench.keys.job(good), "losses", "1")  # and it has its last attempt
    killed = processes.worker(4)
    processes.reaper()
    await wait_until(lambda: runs(store, good))
    assert await runs(store, poison)
    await wait_until(lambda: killed.poll() is not None)
    await wait_until(lambda: is_pending(store, good))
    processes.worker(1)
    await wait_until(lambda: is_done(store, good))


@pytest.mark.chaos
async def test_a_long_job_with_which_a_worker_was_lost_does_not_keep_its_slots_from_the_others(
    processes: Any, bench: Bench, wait_until: WaitUntil
) -> None:
    store = bench.store(QUICK)
    (suspect,) = await submit(store, new_job(command="sleep 60"))
    await claim(store, worker="dies-at-once")
    processes.reaper()
    await wait_until(lambda: is_pending(store, suspect))
    processes.worker(2)
    await wait_until(lambda: runs(store, suspect))
    (other,) = await submit(store, new_job())
    await wait_until(lambda: is_done(store, other))
    assert await runs(store, suspect)


async def is_pending(store: Store, job_id: str) -> bool:
    return (await store.job(job_id)).status is Status.PENDING


async def runs(store: Store, job_id: str) -> bool:
    return (await store.job(job_id)).status is Status.RUNNING


async def is_done(store: Store, job_id: str) -> bool:
    return (await store.job(job_id)).status is Status.DONE


@pytest.mark.parametrize("limit", [1, 4])
async def test_what_was_lost_twice_is_claimed_one_by_one_and_before_the_others(bench: Bench, limit: int) -> None:
    store = bench.store()
    lost = await submit(store, *(new_job() for _ in range(3)))
    for _ in range(2):
        claims = await claim(store, worker="dies-at-once", limit=3)
        assert [(len(claims), one.more) for one in claims] == [(3, {})] * 3
        while sum([(await store.job(job_id)).status is Status.PENDING for job_id in lost]) < 3:
            await reap_all(store)
    fresh = await submit(store, *(new_job() for _ in range(2)))
    again = []
    for _ in lost:
        (got,) = await claim(store, limit=limit)
        assert got.more == {"alone": True}
        await finish(store, got)
        again.append(got.id)
    assert sorted(again) == sorted(lost)
    assert [got.id for got in await claim(store, limit=4)] == fresh
