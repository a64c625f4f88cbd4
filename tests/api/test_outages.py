"""Redis is away: every request is answered within 2 s, and an outage is two lines in the log."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from api.app import create_app
from tests.api.every_route import JOB, every_route
from tests.api.live import outage_lines
from tests.cores import waited_s
from tests.log_lines import captured
from workron.redis.read_pool import TURNS
from workron.settings import Settings
from workron.store import Store


async def test_an_outage_is_logged_once_when_it_starts_and_once_when_it_ends(
    redis: Any, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    settings = Settings(data_dir=tmp_path, redis=redis.url)
    async with Store.connect(settings) as store:
        transport = httpx2.ASGITransport(create_app(store, settings, None))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.post("/jobs", json=JOB)).status_code == 201
            with captured() as logs:
                redis.process.kill()
                redis.process.wait(10)
                answers = await asyncio.gather(*(client.post("/jobs", json=JOB) for _ in range(5)))
                answers.append(await client.get("/queues"))
                assert {answer.status_code for answer in answers} == {503}
                assert outage_lines(logs) == ["redis unavailable, retrying"]
                (tmp_path / "redis.sock").unlink(missing_ok=True)
                redis.start()
                await wait_until(lambda: len(outage_lines(logs)) > 1)  # nobody asks meanwhile
                assert (await client.post("/jobs", json=JOB)).status_code == 201
            assert outage_lines(logs) == ["redis unavailable, retrying", "redis available"]


async def test_no_request_waits_longer_than_2_s_for_a_redis_that_hangs(redis: Any, tmp_path: Path) -> None:
    """Whenever the request comes: also one that comes while another's call is about to be given up."""
    settings = Settings(data_dir=tmp_path, redis=redis.url)
    async with Store.connect(settings) as store:
        transport = httpx2.ASGITransport(create_app(store, settings, None))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await client.post("/jobs", json=JOB)
            os.kill(redis.process.pid, signal.SIGSTOP)

            async def ask(after_s: float, method: str, path: str, body: Any = None) -> float:
                await asyncio.sleep(after_s)
                began_s = time.monotonic() - waited_s()
                answer = await client.request(method, path, json=body)
                assert (answer.status_code, answer.json()["type"]) == (503, "/problems/store-unavailable")
                assert int(answer.headers["retry-after"]) >= 1
                return time.monotonic() - waited_s() - began_s

            bulk = {"jobs": [JOB] * 1_000}
            took = await asyncio.gather(
                *(ask(0.4 * number, "POST", "/jobs", JOB) for number in range(8)),
                *(ask(0.4 * number, "POST", "/jobs/bulk", bulk) for number in range(5)),
                *(ask(0.4 * number, "GET", "/jobs") for number in range(8)),
            )
            assert max(took) < 2.5  # 1.8 s, and what a busy machine adds


ANSWERED_WITHOUT_REDIS = {"GET /livez", "GET /cancels"}
"""The process lives; and news of cancels come when there are any."""


@pytest.mark.parametrize("how", ["frozen", "killed"])
async def test_every_route_answers_503_within_2_s_in_an_outage_of_two_lines(
    redis: Any, tmp_path: Path, wait_until: Callable[..., Any], how: str
) -> None:
    settings = Settings(data_dir=tmp_path, redis=redis.url)
    async with Store.connect(settings) as store:
        app = create_app(store, settings, None)
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:

            async def ask(method: str, target: str, body: dict[str, Any]) -> str:
                """Return the route if it was answered without Redis."""
                began_s = time.monotonic()
                answer = await client.request(method, target, **body)
                route = f"{method} {target.partition('?')[0]}"
                assert time.monotonic() - began_s < 2.5, route  # 1.8 s, and what a busy machine adds
                if answer.is_success:
                    return route
                assert (answer.status_code, answer.json()["type"]) == (503, "/problems/store-unavailable"), route
                return ""

            routes = list(every_route(app.openapi()))
            await client.post("/jobs", json=JOB)
            with captured() as logs:
                back = freeze(redis) if how == "frozen" else kill(redis, tmp_path)
                answered = await asyncio.gather(*(ask(*route) for route in routes))
                assert set(answered) - {""} == ANSWERED_WITHOUT_REDIS
                back()
                await wait_until(lambda: len(outage_lines(logs)) > 1)
            assert outage_lines(logs) == ["redis unavailable, retrying", "redis available"]
        await app.state.context.aclose()


def freeze(redis: Any) -> Callable[[], None]:
    os.kill(redis.process.pid, signal.SIGSTOP)
    return lambda: os.kill(redis.process.pid, signal.SIGCONT)


def kill(redis: Any, folder: Path) -> Callable[[], None]:
    redis.process.kill()
    redis.process.wait(10)

    def back() -> None:
        (folder / "redis.sock").unlink(missing_ok=True)
        redis.start()

    return back


async def test_too_many_large_reads_were_an_outage(client: httpx2.AsyncClient, store: Store) -> None:
    """They have a problem type of their own, and the log says nothing of Redis."""
    store._pages._wait_s = 0.05
    turns = [store._pages.turn() for _ in range(TURNS)]
    for turn in turns:
        await turn.__aenter__()
    with captured() as logs:
        answer = await client.get("/jobs")
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/too-many-reads")
    assert int(answer.headers["retry-after"]) >= 1
    assert outage_lines(logs) == []
    for turn in turns:
        await turn.__aexit__(None, None, None)
    assert (await client.get("/jobs")).status_code == 200
