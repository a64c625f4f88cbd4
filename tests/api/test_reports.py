"""What workers report over HTTP: every answer on every kind of server."""

import base64
from typing import Any

import httpx2
import pytest

from tests.builders import claim, new_job, reap_all, submit
from tests.servers import Bench
from workron.models import Claim, Reason, Status
from workron.store import Store

UNKNOWN_JOB = "03557FNiXdtaIcOFmFQkXK"
REPORTS = ["heartbeat", "done", "fail", "release"]


async def running(store: Store, **fields: Any) -> Claim:
    """Have a job claimed."""
    (job_id,) = await submit(store, new_job(**fields))
    (got,) = await claim(store)
    assert got.id == job_id
    return got


async def report(client: httpx2.AsyncClient, got: Claim, what: str, **fields: Any) -> httpx2.Response:
    return await client.post(f"/jobs/{got.id}/{what}", json={"fence": got.fence, **fields})


def refused(response: httpx2.Response, status: int, slug: str) -> bool:
    """Tell whether the answer is this problem."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    assert (response.status_code, response.json()["type"]) == (status, f"/problems/{slug}"), response.text
    return True


async def test_done_ends_the_job(client: httpx2.AsyncClient, store: Store) -> None:
    got = await running(store)
    response = await report(client, got, "done")
    assert (response.status_code, response.json()) == (200, {"id": got.id, "status": "done", "verdict": "accepted"})
    job = await store.job(got.id)
    assert (job.status, job.exit_code) == (Status.DONE, 0)


async def test_a_repeated_result_is_answered_with_what_was_recorded(client: httpx2.AsyncClient, store: Store) -> None:
    got = await running(store)
    await report(client, got, "done")
    for what in ("done", "fail"):
        response = await report(client, got, what)
        assert response.status_code == 200
        assert response.json() == {"id": got.id, "status": "done", "verdict": "recorded"}


async def test_the_scheduler_decides_whether_a_failed_job_runs_again(client: httpx2.AsyncClient, store: Store) -> None:
    got = await running(store, max_attempts=2)
    response = await report(client, got, "fail", exit_code=3, error="no such file")
    assert response.json()["status"] == "scheduled"
    assert (await report(client, got, "fail")).json() == {"id": got.id, "status": "scheduled", "verdict": "recorded"}
    (again,) = await claim(store, wait=True)
    response = await report(client, again, "fail", exit_code=4)
    assert response.json()["status"] == "failed"
    job = await store.job(got.id)
    assert (job.exit_code, job.reason, job.attempts) == (4, Reason.EXIT_CODE, 2)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, Reason.EXIT_CODE),
        ({"exit_code": 2}, Reason.EXIT_CODE),
        ({"signal": 9}, Reason.SIGNAL),
        ({"reason": "timeout", "signal": 15}, Reason.TIMEOUT),
        ({"reason": "spawn", "error": "no"}, Reason.SPAWN),
    ],
)
async def test_a_failure_says_why(
    client: httpx2.AsyncClient, store: Store, fields: dict[str, Any], reason: Reason
) -> None:
    got = await running(store, max_attempts=1)
    await report(client, got, "fail", **fields)
    job = await store.job(got.id)
    assert (job.status, job.reason, job.signal) == (Status.FAILED, reason, fields.get("signal"))


async def test_a_long_or_hostile_error_is_kept_short_and_harmless(client: httpx2.AsyncClient, store: Store) -> None:
    got = await running(store, max_attempts=1)
    await report(client, got, "fail", error="\x1b[31m" + "ä" * 10_000 + "end")
    error = (await store.job(got.id)).error or ""
    assert len(error.encode()) <= 4096
    assert error.endswith("äend")
    assert "\x1b" not in error


async def test_a_result_may_bring_the_output(client: httpx2.AsyncClient, store: Store) -> None:
    got = await running(store)
    await report(client, got, "done", output={"text": "hellö\n"})
    assert (await store.output(got.id)).head == "hellö\n".encode()


async def test_output_comes_in_pieces_at_their_offsets(client: httpx2.AsyncClient, store: Store) -> None:
    got = await running(store)
    path = f"/jobs/{got.id}/output?fence={got.fence}"
    for offset, piece in ((0, b"one\xff"), (4, b"two"), (0, b"one\xff")):
        response = await client.post(f"{path}&offset={offset}&total={7 if offset else 4}", content=piece)
        assert (response.status_code, response.content) == (204, b"")
    assert (await store.output(got.id)).head == b"one\xfftwo"[: (await store.output(got.id)).total]
    await report(client, got, "done", output={"offset": 7, "base64": base64.b64encode(b"\x00end").decode()})
    assert (await store.output(got.id)).head == b"one\xfftwo\x00end"


async def test_output_beyond_what_is_kept_is_refused(client: httpx2.AsyncClient, store: Store) -> None:
    got = await running(store)
    path = f"/jobs/{got.id}/output?fence={got.fence}"
    refused(await client.post(f"{path}&offset=262140", content=b"12345"), 413, "too-large")
    refused(await client.post(path, content=b"1" * 262_145), 413, "too-large")
    refused(await client.post(f"{path}&offset=536870911", content=b"1"), 422, "validation")
    assert (await client.post(f"{path}&offset=131072&total=1000000", content=b"1" * 131_072)).status_code == 204


async def test_output_that_finds_no_room_is_to_be_sent_later(
    client: httpx2.AsyncClient, store: Store, bench: Bench
) -> None:
    got = await running(store)
    await bench.client.hset(bench.keys.meta, "full", "1")
    response = await client.post(f"/jobs/{got.id}/output?fence={got.fence}", content=b"1")
    refused(response, 503, "store-full")
    assert response.headers["retry-after"] == "5"
    assert (await report(client, got, "heartbeat")).status_code == 200
    assert (await report(client, got, "done", output={"text": "x"})).status_code == 200


async def test_a_heartbeat_renews_the_lease_and_tells_of_a_cancel(client: httpx2.AsyncClient, store: Store) -> None:
    got = await running(store)
    response = await report(client, got, "heartbeat")
    assert (response.status_code, response.json()) == (200, {"id": got.id, "state": "ok", "lease_ms": 30_000})
    before = (await store.job(got.id)).last_heartbeat_at_ms
    assert before is not None
    await store.cancel(got.id)
    assert (await report(client, got, "heartbeat")).json()["state"] == "cancel"
    job = await store.job(got.id)
    assert job.worker == "w1"
    assert (await report(client, got, "fail", reason="cancelled")).json()["status"] == "cancelled"


async def test_a_release_gives_the_job_back_and_does_not_count(client: httpx2.AsyncClient, store: Store) -> None:
    got = await running(store)
    assert (await report(client, got, "release")).json() == {"id": got.id, "status": "pending"}
    assert (await store.job(got.id)).attempts == 0
    refused(await report(client, got, "release"), 409, "not-running")


@pytest.mark.parametrize("what", REPORTS)
async def test_a_report_on_an_unknown_job_is_not_found(client: httpx2.AsyncClient, what: str) -> None:
    for job_id in (UNKNOWN_JOB, "x"):
        refused(await client.post(f"/jobs/{job_id}/{what}", json={"fence": 1}), 404, "not-found")
    refused(await client.post(f"/jobs/{UNKNOWN_JOB}/output?fence=1", content=b"x"), 404, "not-found")


@pytest.mark.parametrize("what", REPORTS)
async def test_a_report_on_a_job_that_does_not_run_is_refused(
    client: httpx2.AsyncClient, store: Store, what: str
) -> None:
    (job_id,) = await submit(store, new_job())
    response = await client.post(f"/jobs/{job_id}/{what}", json={"fence": 1})
    assert refused(response, 409, "not-running")
    assert response.json()["code"] == "not_running"


@pytest.mark.parametrize("what", REPORTS)
async def test_a_worker_that_lost_the_lease_can_change_nothing(
    client: httpx2.AsyncClient, store: Store, what: str
) -> None:
    got = await running(store)
    await store.attempts.release([(got.id, got.fence)])
    (other,) = await claim(store, worker="w2")
    response = await report(client, got, what)
    assert refused(response, 409, "lease-lost")
    assert response.json()["code"] == "lease_lost"
    refused(await client.post(f"/jobs/{got.id}/output?fence={got.fence}", content=b"x"), 409, "lease-lost")
    assert (await report(client, other, "done")).json()["verdict"] == "accepted"


@pytest.mark.parametrize("body", [{"fence": "1"}, {"fence": 0}, {"fence": 1.5}, {"fence": 2**54}, {"strange": 1}, []])
@pytest.mark.parametrize("what", REPORTS)
async def test_a_report_that_is_not_valid_is_refused(client: httpx2.AsyncClient, what: str, body: object) -> None:
    refused(await client.post(f"/jobs/{UNKNOWN_JOB}/{what}", json=body), 422, "validation")


async def test_a_body_must_be_declared_as_json(client: httpx2.AsyncClient) -> None:
    response = await client.post(f"/jobs/{UNKNOWN_JOB}/done", content=b'{"fence": 1}')
    refused(response, 415, "unsupported-media-type")


# --- many at once -----------------------------------------------------------------------------------------------------


async def test_heartbeats_of_many_attempts_are_answered_one_by_one(client: httpx2.AsyncClient, store: Store) -> None:
    kept, cancelled, lost = [await running(store) for _ in range(3)]
    await store.cancel(cancelled.id)
    held = [{"id": got.id, "fence": got.fence} for got in (kept, cancelled)] + [{"id": lost.id, "fence": 1}]
    response = await client.post("/heartbeats", json={"worker": {"id": "w1", "host": "h", "pid": 7}, "held": held})
    assert [beat["state"] for beat in response.json()["data"]] == ["ok", "cancel", "lost"]
    (worker,) = (await client.get("/workers")).json()["data"]
    assert (worker["id"], worker["host"], worker["pid"], worker["queues"]) == ("w1", "h", 7, ["default"])


async def test_an_exchange_reports_gives_back_and_claims(client: httpx2.AsyncClient, store: Store) -> None:
    good, bad, back = [await running(store, max_attempts=1) for _ in range(3)]
    (waiting,) = await submit(store, new_job(command="echo next"))
    document = {
        "worker_id": "w1",
        "results": [
            {"id": good.id, "fence": good.fence, "output": {"text": "fine"}},
            {"id": bad.id, "fence": bad.fence, "reason": "signal", "signal": 9},
            {"id": bad.id, "fence": 1, "reason": "exit_code"},
        ],
        "released": [{"id": back.id, "fence": back.fence}],
        "claim": {"request_id": "exchange:1", "queues": ["default"], "limit": 10},
    }
    answer = (await client.post("/exchange", json=document)).json()
    assert [(one["verdict"], one["status"]) for one in answer["results"]] == [
        ("accepted", "done"),
        ("accepted", "failed"),
        ("lease_lost", "failed"),
    ]
    assert [one["id"] for one in answer["claims"]] == [back.id, waiting]
    assert answer["claims"][1]["command"] == "echo next"
    assert answer["lease_ms"] == 30_000
    repeated = (await client.post("/exchange", json=document)).json()
    assert [one["verdict"] for one in repeated["results"]] == ["recorded", "recorded", "lease_lost"]
    assert repeated["claims"] == answer["claims"]


async def test_output_of_many_attempts_is_answered_one_by_one(client: httpx2.AsyncClient, store: Store) -> None:
    got = await running(store)
    data = [
        {"id": got.id, "fence": got.fence, "output": {"text": "hello"}},
        {"id": got.id, "fence": 1, "output": {"text": "no"}},
    ]
    answer = (await client.post("/outputs", json={"data": data})).json()
    assert [one["state"] for one in answer["data"]] == ["stored", "lost"]
    assert (await store.output(got.id)).head == b"hello"


@pytest.mark.parametrize("job_id", ["", "a b", "x 1 y 2", "../x", "0" * 23])
async def test_ids_that_are_none_do_not_reach_the_scripts(client: httpx2.AsyncClient, job_id: str) -> None:
    result = {"id": job_id, "fence": 1}
    for path, document in (
        ("/exchange", {"worker_id": "w", "results": [result]}),
        ("/exchange", {"worker_id": "w", "released": [result]}),
        ("/heartbeats", {"worker": {"id": "w"}, "held": [result]}),
        ("/outputs", {"data": [result | {"output": {}}]}),
    ):
        refused(await client.post(path, json=document), 422, "validation")


async def test_a_lost_lease_is_noticed_by_its_next_heartbeat(client: httpx2.AsyncClient, store: Store) -> None:
    got = await running(store)
    await reap_all(store)
    refused(await report(client, got, "heartbeat"), 409, "not-running")
    (other,) = await claim(store)
    refused(await report(client, got, "heartbeat"), 409, "lease-lost")
    assert other.attempt == 2
