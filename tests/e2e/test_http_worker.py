"""A worker that sees only the API, as processes: started by its command, and with the API killed under it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.api.live import AUTHORIZATION, KEY, START, environment
from tests.patience import Patience
from tests.plain_http import NO_AUTHORITIES

pytestmark = pytest.mark.chaos
LEASE = {"WORKRON_LEASE": "6", "WORKRON_RETRY_DELAY": "0.05"}


class Api:
    """An API process that can be killed and started again on its port, and what a client asks of it."""

    def __init__(self, redis: str, namespace: str, folder: Path) -> None:
        self.port, self._env = environment(redis, namespace, folder)
        self._folder = folder
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx2.Client(base_url=self.url, headers=AUTHORIZATION, timeout=30, verify=NO_AUTHORITIES)
        self.process = self.start()

    def start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", START]
        self.process = subprocess.Popen(command, env=self._env | LEASE, cwd=self._folder, stderr=subprocess.DEVNULL)
        wait_for(self._answers)
        return self.process

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def _answers(self) -> bool:
        try:
            return self.client.get("/readyz").status_code == 200
        except httpx2.TransportError:
            return False

    def submit(self, command: str, **fields: object) -> str:
        return str(self.client.post("/jobs", json={"command": command, **fields}).json()["id"])

    def job(self, job_id: str, wait: int = 0) -> dict[str, object]:
        document: dict[str, object] = self.client.get(f"/jobs/{job_id}", params={"wait": wait}).json()
        return document


def wait_for(condition: object, within_s: float = 60) -> None:
    patience = Patience(within_s)
    while not condition():  # type: ignore[operator]
        assert not patience.is_over
        time.sleep(0.05)


@pytest.fixture
def api(valkey_url: str, namespace: str, tmp_path: Path) -> Iterator[Api]:
    api = Api(valkey_url, namespace, tmp_path)
    yield api
    api.process.terminate()
    assert api.process.wait(30) == 0
    api.client.close()


@contextmanager
def worker(api: Api, folder: Path, *flags: str, **variables: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run `workron worker` with nothing in its environment that leads to Redis."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("WORKRON_")}
    command = [sys.executable, "-m", "workron", "worker", "--slots", "2", "--log-format", "json", *flags]
    with (folder / "worker.log").open("ab") as log:
        process = subprocess.Popen(command, env=own | variables, stderr=log, cwd=folder)
    try:
        yield process
    finally:
        process.terminate()
        assert process.wait(40) == 0, (folder / "worker.log").read_text()


@pytest.mark.parametrize("by", ["flags", "variables"])
def test_the_command_gets_the_url_and_the_key_of_the_api(api: Api, tmp_path: Path, by: str) -> None:
    flags = ["--api", api.url, "--token", KEY] if by == "flags" else []
    variables = {} if flags else {"WORKRON_URL": api.url, "WORKRON_API_KEY": KEY}
    with worker(api, tmp_path, *flags, **variables):
        job_id = api.submit("echo hello; env | grep -c WORKRON_API_KEY || true")
        assert api.job(job_id, wait=30)["status"] == "done"
        assert api.client.get(f"/jobs/{job_id}/output").text == "hello\n0\n"


def test_it_outlasts_the_api_being_killed(api: Api, tmp_path: Path) -> None:
    """What ran goes on, what ended meanwhile is reported, what was waited for is waited for again."""
    with worker(api, tmp_path, "--api", api.url, "--token", KEY):
        long, short = api.submit("sleep 4; echo long"), api.submit("sleep 1; echo short")
        wait_for(lambda: {str(api.job(one)["status"]) for one in (long, short)} == {"running"})
        api.kill()
        time.sleep(2)  # `short` ends while nobody answers
        api.start()
        for job_id in (long, short):
            job = api.job(job_id, wait=30)
            assert (job["status"], job["attempts"]) == ("done", 1)
        for _ in range(3):  # idle, it is parked at the server that dies
            api.kill()
            api.start()
            job = api.job(api.submit("true"), wait=30)
            assert (job["status"], job["attempts"]) == ("done", 1)
    log = (tmp_path / "worker.log").read_text()
    assert '"event": "api unavailable, retrying"' in log
    assert '"event": "api available"' in log
    assert "Traceback" not in log


def test_a_wrong_key_is_reported_in_one_line(api: Api, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "workron", "worker", "--api", api.url, "--token", "x" * 20]
    env = {name: value for name, value in os.environ.items() if not name.startswith("WORKRON_")}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert ended.returncode != 0
    assert "401" in ended.stderr
    assert "--token" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_parked_requests_do_not_keep_the_api_from_stopping(api: Api, tmp_path: Path) -> None:
    curl = ["curl", "-sS", "-m", "60", "-o", "/dev/null", "-w", "%{http_code}", "-H", f"Authorization: Bearer {KEY}"]
    urls = [f"{api.url}/jobs/next?worker_id=w{number}&wait=50" for number in range(10)]
    polls = [subprocess.Popen([*curl, url], stdout=subprocess.PIPE) for url in urls]
    time.sleep(1)
    started = time.monotonic()
    api.process.send_signal(signal.SIGTERM)
    assert api.process.wait(10) == 0
    assert time.monotonic() - started < 5
    assert [poll.communicate()[0] for poll in polls] == [b"204"] * 10
    api.start()


def test_it_needs_no_redis_client() -> None:
    code = (
        "import sys, workers.main, workers.http_source, workers.worker; "
        "sys.exit([name for name in sys.modules if name.partition('.')[0] in ('redis', 'hiredis', 'fastapi')] != [])"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
