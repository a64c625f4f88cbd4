"""A long chain of commands, and thousands between one that all wait for and one that waits for all, through HTTP and a
real worker; and no call to the server does more than bounded work, however wide the graph.
"""

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from redis import Redis

from tests.budget import budget
from tests.e2e.up import Up
from tests.local_stack import ROOT
from workron.redis.scripts import Script

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

CHAIN = budget(250, 1_000)
FAN = budget(2_500, 10_000)
WITHIN_S = 200
MOST_COMMANDS = 4_000
"""In one script call: 200 edges take 2,000, admitting 400 jobs 1,600. A fan-out in one call takes four for each job."""
LONG_US = 50_000
"""A call does 10 ms of work; some are measured longer, as the server may have to wait for a processor."""


class Monitor(threading.Thread):
    """Counts the commands in each script call, as MONITOR tells them: work that no other load on the machine blurs."""

    def __init__(self, redis_url: str) -> None:
        super().__init__(daemon=True)
        self.most: Counter[str] = Counter()
        """The most commands in one call, by script."""
        self._names = {Script.load(path.stem, shebang=True).sha: path.stem for path in (ROOT / "lua").glob("*.lua")}
        self._script: str | None = None
        self._commands = 0
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(redis_url.removeprefix("unix://"))
        self._connection.sendall(b"MONITOR\r\n")
        assert self._connection.recv(5) == b"+OK\r\n"

    def run(self) -> None:
        with self._connection.makefile("rb") as lines:
            for line in lines:
                client, _, command = line.partition(b"] ")
                if client.endswith(b" lua"):
                    self._commands += 1
                else:
                    self._begin(command)

    def _begin(self, command: bytes) -> None:
        """Keep what the last call did, and see if this one is a script, too."""
        if self._script:
            self.most[self._script] = max(self.most[self._script], self._commands)
        word, _, rest = command[:100].partition(b" ")
        sha = rest.partition(b" ")[0].strip(b'"').decode()
        self._script = self._names.get(sha, "another script") if word.upper().startswith(b'"EVAL') else None
        self._commands = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.shutdown(socket.SHUT_RDWR)
        self.join(30)
        self._connection.close()


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    home = tmp_path_factory.mktemp("up")
    with Up(home, "--slots", "32", WORKRON_QUEUES="chain,fan,arrays", WORKRON_LOG_LEVEL="warning") as up:
        up.start()
        yield up


@pytest.fixture
def bounded_calls(up: Up) -> Iterator[None]:
    """After the test, its calls to the server must have been short."""
    with Redis.from_url(up.redis_url) as redis:
        redis.config_set("slowlog-log-slower-than", 10_000)
        redis.config_set("slowlog-max-len", 100_000)
        redis.slowlog_reset()
        redis.config_resetstat()
        with Monitor(up.redis_url) as monitor:
            yield
        slow: Any = redis.slowlog_get(100_000)
        stats: Any = redis.info("commandstats")
    assert monitor.most["attempt_finish"] > 0
    assert max(monitor.most.values()) < MOST_COMMANDS, f"most commands in one call: {monitor.most}"

    slow_us = sorted(entry["duration"] for entry in slow if entry["command"].startswith(b"EVAL"))
    calls = stats["cmdstat_evalsha"]["calls"]
    told = f"of {calls} script calls {len(slow_us)} took over 10 ms, the longest {slow_us[-10:]} µs"
    assert sum(us > LONG_US for us in slow_us) <= calls // 100, told


def submit(up: Up, jobs: list[dict[str, Any]]) -> None:
    answer = up.http.post("/workflows", json={"jobs": jobs})
    assert answer.status_code == 201, answer.text[:1000]
    assert answer.json()["size"] == len(jobs)


def wait_until_done(up: Up, queue: str, size: int) -> None:
    def counts() -> dict[str, int]:
        (found,) = [one["counts"] for one in up.http.get("/queues").json()["data"] if one["name"] == queue]
        return {status: count for status, count in found.items() if count}

    up.wait_for(lambda: counts() == {"done": size}, f"{size} jobs done", within_s=WITHIN_S)


def assert_all_run_once(up: Up, queue: str, size: int) -> None:
    wait_until_done(up, queue, size)
    attempts: dict[str, int] = {}
    where: dict[str, Any] = {"queue": queue, "status": "done", "limit": 1000}
    while where.get("cursor", "") is not None:
        page = up.http.get("/jobs", params=where).json()
        attempts |= {job["id"]: job["attempts"] for job in page["data"]}
        where["cursor"] = page["next_cursor"]
    assert Counter(attempts.values()) == {1: size}


@pytest.mark.usefixtures("bounded_calls")
def test_a_chain_of_very_many_commands(up: Up, tmp_path: Path) -> None:
    jobs: list[dict[str, Any]] = [
        {"name": f"{n}", "queue": "chain", "command": f"echo {n} >> {tmp_path}/ran", "depends_on": [f"{n - 1}"]}
        for n in range(CHAIN)
    ]
    jobs[0]["depends_on"] = []
    submit(up, jobs)
    assert_all_run_once(up, "chain", CHAIN)
    assert (tmp_path / "ran").read_text().split() == [str(n) for n in range(CHAIN)]


@pytest.mark.usefixtures("bounded_calls")
def test_a_fan_out_of_thousands_of_commands_and_back_in(up: Up) -> None:
    leaves = [{"name": f"leaf-{n}", "queue": "fan", "argv": ["true"], "depends_on": ["root"]} for n in range(FAN)]
    root = {"name": "root", "queue": "fan", "command": "sleep 0.1"}
    end = {"name": "end", "queue": "fan", "argv": ["true"], "depends_on": [leaf["name"] for leaf in leaves]}
    submit(up, [root, *leaves, end])
    assert_all_run_once(up, "fan", FAN + 2)


@pytest.mark.usefixtures("bounded_calls")
def test_an_array_that_many_arrays_follow_task_by_task(up: Up) -> None:
    size, followers = 100, 30
    first = {"name": "first", "queue": "arrays", "argv": ["true"], "array": {"size": size}}
    behind = [first | {"name": f"{n}", "depends_on": [{"job": "first", "matching": True}]} for n in range(followers)]
    submit(up, [first, *behind])
    wait_until_done(up, "arrays", (size + 1) * (followers + 1))
