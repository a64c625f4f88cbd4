"""`kill -9` of the API at each call that it makes to Redis while an output is followed: no byte is lost or repeated."""

import asyncio
import io
import sys
from pathlib import Path

import pytest

from tests.builders import SUCCESS, claim, new_job, submit
from tests.e2e.mortal_api import NEVER, MortalApi
from tests.ports import free_port
from tests.servers import QUICK, start_server
from workron.cli.stream import FROM_THE_BEGINNING, OutputSink, follow
from workron.client import Client
from workron.client.documents import JobDoc
from workron.local.valkey import server_binary
from workron.models import Claim, OutputPatch, Result
from workron.redis.connection import Connection
from workron.store import Store

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

KEY = "a-key-for-tests-only"
DEATHS = [(when, number) for number in range(5) for when in ("before", "after")]
"""A server makes fewer calls than that before it has sent the first piece of output."""


class Said(io.BytesIO):
    """Stdout of the command line."""

    @property
    def buffer(self) -> "Said":
        return self


async def write(store: Store, attempt: Claim, said: bytes, line: bytes) -> bytes:
    await store.attempts.write_output(
        [(attempt.id, attempt.fence, OutputPatch(len(said), line, len(said) + len(line)))]
    )
    return said + line


async def test_no_byte_is_lost_or_repeated_whenever_the_api_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, port = Said(), free_port()
    monkeypatch.setattr(sys, "stdout", shown)
    redis = start_server(server_binary(), tmp_path)
    url = f"unix://{tmp_path}/redis.sock"
    settings = {"redis": url, "api_key": KEY, "data_dir": str(tmp_path), "port": port, "audit_entries": 0}

    def followed(job_id: str) -> JobDoc:
        with Client(f"http://127.0.0.1:{port}", KEY) as client, OutputSink() as sink:
            return follow(client, job_id, sink, FROM_THE_BEGINNING)

    try:
        with MortalApi(tmp_path / "api.log") as api:
            async with Store(Connection.open(url, budget_s=20), policy=QUICK) as store:
                [job_id] = await submit(store, new_job())
                [attempt] = await claim(store)
                expected = said = b""
                following = None
                for number, dies in enumerate(DEATHS):
                    api.start(dies, **settings)
                    following = following or asyncio.create_task(asyncio.to_thread(followed, job_id))
                    life = asyncio.create_task(asyncio.to_thread(api.life))
                    while not life.done():  # each line brings a call
                        said = await write(store, attempt, said, f"{number} {len(said)}\n".encode())
                        assert not following.done(), following.result()
                        await asyncio.sleep(0.05)
                    await life
                    if number % 4 == 3:
                        await store.attempts.release([(attempt.id, attempt.fence)])
                        [attempt] = await claim(store)
                        expected, said = expected + said, b""
                last = OutputPatch(len(said), b"RESULT\n", len(said) + 7)
                await store.attempts.finish([Result(job_id, attempt.fence, SUCCESS, last)], worker="w1")
                api.start(NEVER, **settings)
                assert following is not None
                assert (await asyncio.wait_for(following, 120))["status"] == "done"
                api.stop()
                await asyncio.to_thread(api.life)
    finally:
        redis.terminate()
        redis.wait(10)
    assert shown.getvalue() == expected + said + b"RESULT\n"
