"""What a container engine is told about each of our processes."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from workron.healthcheck import api_problem, reaper_problem, worker_problem
from workron.models import WorkerInfo
from workron.store import Store


def worker_on(host: str) -> WorkerInfo:
    return WorkerInfo("w1", host, 1, ("default",), slots=1, running=0, started_at_ms=0, version="0")


async def test_a_reaper_is_healthy_once_it_has_made_a_pass(store: Store) -> None:
    assert await reaper_problem(store, 1.0) == "no reaper has run yet"
    await store.maintenance.reap()
    assert await reaper_problem(store, 1.0) is None


async def test_a_reaper_that_stopped_making_passes_is_not_healthy(store: Store) -> None:
    await store.maintenance.reap()
    assert "the last pass of a reaper was" in str(await reaper_problem(store, -10.0))


async def test_a_worker_is_healthy_while_one_of_its_host_shows_life(store: Store) -> None:
    await store.attempts.heartbeat(worker_on("here"), [])
    assert await worker_problem(store, "here") is None
    assert "no worker on elsewhere" in str(await worker_problem(store, "elsewhere"))


@contextmanager
def server_answering(status: int) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/readyz"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "problem"), [(200, None), (503, "the API is not ready: Service Unavailable")])
def test_the_api_is_healthy_when_it_says_so(status: int, problem: str | None) -> None:
    with server_answering(status) as url:
        assert api_problem(url) == problem


@pytest.mark.parametrize(
    ("redis", "reason"), [("", "has shown life"), ("unix:///nowhere.sock", "Redis can't be reached")]
)
def test_the_exit_code_and_one_line_tell_the_engine(valkey_url: str, redis: str, reason: str) -> None:
    command = [sys.executable, "-m", "workron.healthcheck", "worker"]
    env = {"WORKRON_REDIS": redis or valkey_url, "WORKRON_NAMESPACE": "nobody"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1
