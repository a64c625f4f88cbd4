"""Somebody has overwritten a key of ours with another type: others go on, what can't go on says so, nobody dies of it,
and when it is mended all goes on.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import httpx2
import pytest
from redis import Redis

from tests.e2e.up import Up
from workron.redis.keys import Keys

pytestmark = [pytest.mark.chaos, pytest.mark.together]

KEYS: Final = Keys("default")
SETTINGS = {
    "WORKRON_LOG_FORMAT": "json",
    "WORKRON_REAP_EVERY": "0.1s",
    "WORKRON_HEARTBEAT": "0.5s",
    "WORKRON_LEASE": "3s",
}
LINES: Final = 10
"""More lines than these would be a loop of complaints."""


class System:
    """A running `up` with some jobs in the queue `nobody`, which no worker serves."""

    def __init__(self, up: Up, redis: Any) -> None:
        self.up, self.redis = up, redis
        self.parent = self.submit(queue="nobody").json()["id"]
        self.child = self.submit(queue="nobody", depends_on=[self.parent]).json()["id"]

    def submit(self, **job: Any) -> httpx2.Response:
        return self.up.http.post("/jobs", json={"command": "true", **job})

    def ended(self, job_id: str) -> tuple[str, int]:
        job = self.up.http.get(f"/jobs/{job_id}", params={"wait": 15}).json()
        return job["status"], job["attempts"]

    @property
    def worker(self) -> str:
        (about,) = [one for one in self.up.http.get("/workers").json()["data"] if one["state"] == "active"]
        return str(about["id"])

    @contextmanager
    def overwritten(self, key: str) -> Iterator[None]:
        """Have the key hold another type, until it is mended: then it is as it was."""
        before, kind = self.redis.dump(key), self.redis.type(key)
        pipe = self.redis.pipeline()
        pipe.delete(key)
        if kind == b"string":
            pipe.rpush(key, "what?")
        else:
            pipe.set(key, "what?")
        pipe.execute()
        yield
        pipe.delete(key)
        if before is not None:
            pipe.restore(key, 0, before)
        pipe.execute()


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with Up(tmp_path_factory.mktemp("up"), "--slots", "4", **SETTINGS) as up:
        up.start()
        with Redis.from_url(up.redis_url) as redis:
            yield System(up, redis)


OF_SOME: Final[dict[str, Callable[[System], str]]] = {
    "a job": lambda system: KEYS.job(system.parent),
    "its dependents": lambda system: f"{KEYS.job(system.parent)}:children",
    "its dependencies": lambda system: f"{KEYS.job(system.child)}:parents",
    "another queue": lambda system: KEYS.queue("nobody"),
    "its pending jobs": lambda system: KEYS.pending("nobody", 5),
    "its blocked jobs": lambda system: f"{KEYS.queue('nobody')}:blocked",
    "all workers": lambda system: f"{KEYS.prefix}workers",
    "a worker": lambda system: f"{KEYS.prefix}worker:{system.worker}",
    "large submissions": lambda system: KEYS.batches,
    "queues with a gate": lambda system: f"{KEYS.prefix}gates",
    "arrays": lambda system: KEYS.arrays,
    "damaged jobs": lambda system: f"{KEYS.prefix}quarantine",
    "bulk actions": lambda system: KEYS.actions_open,
    "schedules": lambda system: KEYS.schedules_due,
}
"""Keys that others can do without."""
OF_ALL: Final[dict[str, Callable[[System], str]]] = {
    "the leases": lambda system: KEYS.leases,
    "what is due": lambda system: KEYS.due,
    "all jobs": lambda system: KEYS.jobs,
    "all queues": lambda system: KEYS.queues,
    "the events": lambda system: KEYS.events,
    "what all share": lambda system: KEYS.meta,
    "what is to be propagated": lambda system: KEYS.propagate,
    "the queue": lambda system: KEYS.queue("default"),
    "the pending jobs": lambda system: KEYS.pending("default", 5),
    "the parked workers": lambda system: f"{KEYS.queue('default')}:parked",
    "a claim": lambda system: f"{KEYS.prefix}worker:{system.worker}:claim",
}
"""Keys without which nobody gets far."""
PAGES: Final = ("/jobs", "/jobs?status=done&queue=default", "/queues", "/workers", "/schedules", "/health", "/readyz")


def assert_nobody_has_died(system: System, before: dict[str, int], lines_before: int) -> None:
    assert system.up.pids == before
    lines = system.up.log_file.read_text().splitlines()[lines_before:]
    complaints = [line for line in lines if '"warning"' in line or '"error"' in line]
    assert len(complaints) <= LINES, complaints
    assert not [line for line in complaints if "Traceback" in line]


def lines_of(up: Up) -> int:
    return len(up.log_file.read_text().splitlines())


def says_so(answer: httpx2.Response) -> bool:
    said = answer.json()
    return answer.status_code == 503 and re.search("WRONGTYPE|damaged", said["detail"]) is not None


@pytest.mark.parametrize("what", OF_SOME)
def test_a_key_of_the_wrong_type_spares_all_calls_that_do_not_need_it(system: System, what: str) -> None:
    before, lines = system.up.pids, lines_of(system.up)
    with system.overwritten(OF_SOME[what](system)):
        for _ in range(3):
            answer = system.submit()
            assert answer.status_code == 201, answer.text
            assert system.ended(answer.json()["id"]) == ("done", 1)
        for page in PAGES:
            answer = system.up.http.get(page)
            assert answer.status_code == 200 or says_so(answer), answer.text
        for job_id in (system.parent, system.child):
            assert system.up.http.get(f"/jobs/{job_id}").status_code in (200, 404, 503)
    assert_nobody_has_died(system, before, lines)
    assert system.submit(queue="nobody", command="true").status_code == 201


@pytest.mark.parametrize("what", OF_ALL)
def test_without_a_key_that_all_need_they_say_so_and_go_on_when_it_is_mended(system: System, what: str) -> None:
    before, lines = system.up.pids, lines_of(system.up)
    accepted = []
    with system.overwritten(OF_ALL[what](system)):
        for _ in range(2):
            answer = system.submit()
            if answer.status_code == 201:
                accepted.append(answer.json()["id"])
            else:
                assert says_so(answer), answer.text
        for page in PAGES:
            answer = system.up.http.get(page)
            assert answer.status_code == 200 or says_so(answer), answer.text
        with suppress(AssertionError):
            system.up.wait_for(lambda: lines_of(system.up) > lines, "a complaint", within_s=1)
    accepted.append(system.submit().json()["id"])
    assert {system.ended(job_id)[0] for job_id in accepted} == {"done"}
    assert_nobody_has_died(system, before, lines)
