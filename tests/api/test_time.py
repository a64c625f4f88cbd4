"""Times in requests: seconds, texts and moments; deadlines and expiries; who does not stop when told to."""

import asyncio
import json
from typing import Any

import httpx2
import pytest

from api.http.body import parse
from api.problems import InvalidFields
from tests.builders import claim, finish
from workron.models import Moment, Outcome, Reason
from workron.specs.job import NewJob
from workron.store import Store
from workron.times import rfc3339


def accepted(**fields: Any) -> Any:
    return parse(NewJob, json.dumps({"command": "x"} | fields).encode()).to_new_job("id", ())


@pytest.mark.parametrize(
    ("given", "ms"),
    [
        (30, 30_000),
        (0.25, 250),
        ("30s", 30_000),
        ("5m", 300_000),
        ("1.5h", 5_400_000),
        ("7d", 604_800_000),
        ("500ms", 500),
        ("0.001s", 1),
        ("3599d", 310_953_600_000),
        ("3650d", 315_360_000_000),
        ("87840h", 316_224_000_000),
    ],
)
def test_durations_are_numbers_or_texts(given: Any, ms: int) -> None:
    job = accepted(timeout=given, delay=given)
    assert (job.timeout_ms, job.delay_ms) == (ms, ms)
    assert accepted(run_at=given).delay_ms == ms
    job = accepted(deadline=given, expires=given)
    assert (job.deadline, job.expires) == (Moment(after_ms=ms), Moment(after_ms=ms))


@pytest.mark.parametrize("given", [0, "0s", "0d"])
def test_no_time_is_a_delay_but_neither_a_timeout_nor_a_deadline(given: Any) -> None:
    assert (accepted(delay=given).delay_ms, accepted(run_at=given).delay_ms) == (0, 0)
    for name in ("timeout", "deadline", "expires"):
        with pytest.raises(InvalidFields):
            accepted(**{name: given})


def test_moments_are_times_with_an_offset() -> None:
    job = accepted(run_at="2030-01-01T00:00:00Z", deadline="2030-01-01T02:00:00.5+01:00")
    assert job.run_at_ms == 1_893_456_000_000
    assert job.deadline == Moment(at_ms=1_893_459_600_500)
    assert accepted(expires="1969-01-01T00:00:00z").expires == Moment(at_ms=1)


@pytest.mark.parametrize("name", ["timeout", "delay", "run_at", "deadline", "expires"])
@pytest.mark.parametrize(
    "given",
    [
        "30",
        "30 s",
        "-5s",
        "1e3s",
        "s",
        "",
        "05s",
        "5w",
        "3661d",
        "٣s",
        "5s\n",
        "2030-01-01",
        "2030-01-01T00:00:00",
        "2030-02-30T00:00:00Z",
        "tomorrow",
        -1,
        316_224_001,
        1_900_000_000,
        True,
        [],
        float("nan"),
        float("inf"),
        10**400,
    ],
)
def test_what_is_no_time_is_refused_and_named(name: str, given: Any) -> None:
    with pytest.raises(InvalidFields) as caught:
        accepted(**{name: given})
    assert [name] in [fault["loc"] for fault in caught.value.faults] or given == 10**400


@pytest.mark.parametrize("name", ["deadline", "expires"])
@pytest.mark.parametrize(
    ("start", "end"),
    [
        ({"delay": 60}, "60s"),
        ({"run_at": "2m"}, 119.9),
        ({"run_at": "2030-01-01T00:00:00Z"}, "2030-01-01T00:00:00Z"),
    ],
)
def test_a_job_whose_time_is_up_before_it_may_start_is_refused(name: str, start: dict[str, Any], end: Any) -> None:
    with pytest.raises(InvalidFields, match=f"{name} is before the time"):
        accepted(**start, **{name: end})


def test_a_job_may_start_a_moment_before_its_time_is_up() -> None:
    assert accepted(delay=60, expires="60.001s", deadline="61s").delay_ms == 60_000
    assert accepted(run_at="2030-01-01T00:00:00Z", deadline="1s").deadline == Moment(after_ms=1000)  # who knows


async def submitted(client: httpx2.AsyncClient, **fields: Any) -> dict[str, Any]:
    response = await client.post("/jobs", json={"command": "x"} | fields)
    assert response.status_code == 201, response.text
    document: dict[str, Any] = response.json()
    return document


async def test_the_answer_says_the_moments(client: httpx2.AsyncClient, store: Store) -> None:
    answered = await submitted(client, deadline="2h", expires="2099-01-01T00:00:00Z")
    stored = (await client.get(f"/jobs/{answered['id']}")).json()
    job = await store.job(answered["id"])
    assert answered == stored
    assert stored["deadline"] == rfc3339(job.created_at_ms + 7_200_000)
    assert stored["expires"] == "2099-01-01T00:00:00.000Z"


async def test_jobs_without_have_neither(client: httpx2.AsyncClient) -> None:
    answered = await submitted(client)
    assert (answered["deadline"], answered["expires"]) == (None, None)


async def test_a_job_that_expired_says_so(client: httpx2.AsyncClient, store: Store) -> None:
    job_id = (await submitted(client, expires="1ms"))["id"]
    await asyncio.sleep(0.01)
    await store.maintenance.promote()
    document = (await client.get(f"/jobs/{job_id}")).json()
    assert (document["status"], document["reason"], document["started_at"]) == ("cancelled", "expired", None)
    assert (await client.post(f"/jobs/{job_id}/retry", json={"run": 1})).json()["status"] == "pending"


async def test_jobs_of_a_workflow_have_times_of_their_own(client: httpx2.AsyncClient) -> None:
    jobs = [
        {"name": "a", "command": "true", "deadline": "1h"},
        {"name": "b", "command": "true", "depends_on": ["a"], "expires": 60},
    ]
    workflow = (await client.post("/workflows", json={"jobs": jobs})).json()
    first, second = workflow["jobs"]
    assert (first["deadline"] is None, first["expires"]) == (False, None)
    assert (second["deadline"], second["expires"] is None) == (None, False)
    assert workflow == (await client.get(f"/workflows/{workflow['id']}")).json()


async def test_a_client_that_ignores_a_cancel_is_notified_then_refused_and_the_job_ends(
    client: httpx2.AsyncClient, store: Store
) -> None:
    """The simplest of clients: it claims, beats and reports, and does not look at the answers."""
    job_id = (await submitted(client))["id"]
    claimed = (await client.get("/jobs/next", params={"worker_id": "w"})).json()
    fence = {"fence": claimed["fence"]}
    assert (await client.post(f"/jobs/{job_id}/cancel")).status_code == 202
    answers = []
    while (await client.get(f"/jobs/{job_id}")).json()["status"] == "running":
        answers.append(await client.post(f"/jobs/{job_id}/heartbeat", json=fence))
        await store.maintenance.reap()
        await asyncio.sleep(0.02)
    assert {answer.json()["state"] for answer in answers if answer.status_code == 200} == {"cancel"}
    assert {answer.status_code for answer in answers} <= {200, 409}
    assert (await client.post(f"/jobs/{job_id}/done", json=fence)).status_code == 409
    ended = (await client.get(f"/jobs/{job_id}")).json()
    assert (ended["status"], ended["reason"]) == ("cancelled", "cancelled")


async def test_a_cancel_that_was_accepted_keeps_the_exit_code(client: httpx2.AsyncClient, store: Store) -> None:
    job_id = (await submitted(client))["id"]
    [attempt] = await claim(store)
    assert (await client.post(f"/jobs/{job_id}/cancel", json={"run": 1})).status_code == 202
    await finish(store, attempt, Outcome(Reason.EXIT_CODE, exit_code=7))
    ended = (await client.get(f"/jobs/{job_id}")).json()
    assert (ended["status"], ended["exit_code"]) == ("cancelled", 7)
    assert (await client.post(f"/jobs/{job_id}/cancel", json={"run": 1})).status_code == 200
