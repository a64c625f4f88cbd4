"""Unique keys and bulk actions over the death and restart of the Redis server."""

import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.builders import claim, finish, jobs, new_job, submit
from tests.bulk_actions import order, work_off
from tests.servers import QUICK, start_server
from tests.unique_keys import refused, unique
from workron.local.valkey import server_binary
from workron.models import Status
from workron.models.actions import Verb
from workron.redis.connection import Connection, build_client
from workron.store import Store


class Mortal:
    """A server that forgets nothing that it has answered, and may be killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.url = f"unix://{folder / 'redis.sock'}"
        self.process: subprocess.Popen[bytes]
        self.start()

    def start(self) -> None:
        self.process = start_server(server_binary(), self._folder, "--appendonly", "yes", "--appendfsync", "always")

    def restart(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        (self._folder / "redis.sock").unlink()
        self.start()


@pytest.fixture
async def mortal(tmp_path: Path) -> AsyncIterator[Mortal]:
    mortal = Mortal(tmp_path)
    yield mortal
    mortal.process.kill()
    mortal.process.wait(10)


def connect(mortal: Mortal) -> Store:
    return Store(Connection(build_client(mortal.url), url=mortal.url), namespace="n", policy=QUICK)


async def test_a_key_is_still_held_after_a_restart_and_still_ends(mortal: Mortal) -> None:
    async with connect(mortal) as store:
        (first,) = await submit(store, new_job(unique=unique(ttl_ms=60_000)))
    mortal.restart()
    async with connect(mortal) as store:
        assert await refused(store) == first
        ttl_ms = await store.connection.call("PTTL", store.keys.unique("k"))
        assert 0 < ttl_ms <= 60_000
        await finish(store, (await claim(store))[0])
        await submit(store, new_job(unique=unique()))


async def test_an_action_goes_on_where_it_was(mortal: Mortal) -> None:
    new = jobs(350)
    async with connect(mortal) as store:
        await store.submit(new)
        action = await order(store, Verb.CANCEL)
        await store.actions.step("r")
    mortal.restart()
    async with connect(mortal) as store:
        ended = await work_off(store, action)
        assert (ended.matched, ended.done, ended.failed) == (350, 350, 0)
        found = await store.jobs([job.id for job in new])
        assert {job.status for job in found if job} == {Status.CANCELLED}
