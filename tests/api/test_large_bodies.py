"""Large bodies are taken in slices: the same as if they were read whole, but no call into C gets much of them."""

import gc
import json
import threading
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import httpx2
import orjson
import pytest
from pydantic import BaseModel

from api.http import body, large, slices
from api.problems import InvalidFields
from api.routes import submissions
from api.worker_calls.bodies import NewClaims, NewExchange, NewHeartbeats, NewOutputs, Report
from workron import ids
from workron.errors import InvalidRequest
from workron.specs.job import NewJob
from workron.specs.workflow import MoreJobs, NewJobs, NewWorkflow

BIG = "x" * 70_000
SLICE = 33_000
"""Bytes that take some milliseconds."""
KEYED = {"content-type": "application/json"}


def jobs(size: int, **last: Any) -> dict[str, Any]:
    """Many jobs of which each says something else, the last one also this."""
    made = [{"command": f"echo '}},{{' {n}", "env": {"N": f'"{n}"'}, "tags": ["a", "b"]} for n in range(size)]
    made[-1] |= last
    return {"jobs": made}


def many_of(size: int, **fields: Any) -> list[dict[str, Any]]:
    """What a worker says of many attempts."""
    return [{"id": job_id, "fence": 7, **fields} for job_id in ids.new_ids(size)]


VALUES = [f"v{n}" for n in range(20_000)]
BODIES: list[tuple[type[BaseModel], dict[str, Any]]] = [
    (NewJobs, jobs(3000)),
    (NewJobs, jobs(3000, env={"LONG": BIG})),
    (NewJobs, jobs(3000, command=BIG)),
    (NewJobs, jobs(2, command=BIG)),
    (NewJobs, jobs(3000, array={"values": VALUES, "max_parallel": 2})),
    (NewWorkflow, {"name": "w", **jobs(3000, depends_on=[{"job": "x", "when": "failed"}]), "on_failure": "stop"}),
    (MoreJobs, jobs(3000, depends_on=[f"p{n}" for n in range(10_000)])),
    (NewJob, {"command": "true", "array": {"max_parallel": 3, "values": VALUES}}),
    (NewJob, {"command": "true", "array": VALUES}),
    (NewJobs, jobs(3000, array=VALUES)),
    (NewJob, {"argv": ["true", *VALUES[:9000]], "env": {"A": BIG}, "metadata": {"a": [[[[[[[[[[1]]]]]]]]]]}}),
    (NewJob, {"command": BIG, "array": {"values": ["a"]}}),
    (NewExchange, {"worker_id": "w", "results": many_of(150, output={"text": BIG}, result={"a": [1] * 30_000})}),
    (NewOutputs, {"data": many_of(150, output={"base64": "QUFB" * 1000})}),
    (NewHeartbeats, {"worker": {"id": "w"}, "held": many_of(10_000)}),
    (Report, {"result": [[1] * 9000] * 3}),
]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize(("model", "document"), BODIES)
def test_a_large_body_says_the_same_in_slices(model: type[BaseModel], document: Any, indent: int | None) -> None:
    raw = json.dumps(document, indent=indent).encode()
    assert len(raw) > large.LARGE
    assert large.parse(model, raw) == model.model_validate_json(raw)


def many(what: str, size: int) -> bytes:
    return b"[" + b",".join([what.encode()] * size) + b"]"


FAULTS: list[tuple[type[BaseModel], bytes]] = [
    (NewJobs, orjson.dumps(jobs(3000, command=7))),
    (NewJobs, orjson.dumps(jobs(3000, env={"A": 1}, nice=3))),
    (NewJobs, orjson.dumps(jobs(3000, command=BIG, env={"A": 1}))),
    (NewJobs, orjson.dumps(jobs(3000, array={"values": [*VALUES, 1]}))),
    (NewJobs, orjson.dumps({**jobs(3000), "more": 1})),
    (NewJobs, orjson.dumps({"jobs": {f"{n}": 1 for n in range(9000)}})),
    (NewWorkflow, orjson.dumps({**jobs(3000), "on_failure": "never"})),
    (NewJob, orjson.dumps({"command": "x", "array": {"values": [*VALUES, "\0"]}})),
    (NewJob, orjson.dumps({"command": "x", "array": {"values": VALUES, "size": 3}})),
    (NewJob, orjson.dumps({"command": "x", "array": [*VALUES, 1]})),
    (NewOutputs, orjson.dumps({"data": [*many_of(149, output={"text": BIG}), {"id": "?", "fence": 1}]})),
]


@pytest.mark.parametrize(("model", "raw"), FAULTS)
def test_a_fault_is_reported_with_its_place(model: type[BaseModel], raw: bytes) -> None:
    with pytest.raises(InvalidFields) as expected:
        body.parse(model, raw)
    with pytest.raises(InvalidFields) as told:
        large.parse(model, raw)
    assert told.value.faults == expected.value.faults


@pytest.mark.parametrize(
    ("model", "raw"),
    [
        (NewJobs, b'{"jobs":%b}' % many('{"command":"true"}', 100_001)),
        (NewJob, b'{"command":"true","array":{"values":%b}}' % many('"v"', 1_000_001)),
        (NewJob, b'{"command":"true","array":%b}' % many('"v"', 1_000_001)),
        (NewJob, b'{"command":"true","argv":%b}' % many('"v"', 1_000_000)),
        (NewJob, orjson.dumps({"command": "true", "env": {f"v{n}": "" for n in range(200_000)}})),
        (NewJob, orjson.dumps({"command": "true", "metadata": {"a": {f"v{n}": "" for n in range(200_000)}}})),
        (NewJobs, orjson.dumps(jobs(2, env={f"v{n}": "" for n in range(200_000)}))),
        (NewJobs, orjson.dumps({**jobs(2000), "more": [1] * 200_000})),
        (NewJobs, b'{"jobs":%b,"jobs":%b}' % (many('{"command":"true"}', 20_000), many('{"command":"x"}', 20_000))),
        (NewJob, b'{"command":"true","array":{"values":%b}}' % many("[1,2]", 20_000)),
        (NewJobs, b'{"jobs":[%b' % (b'{"command":"true"},' * 5000)),
        (NewJobs, b'{"jobs":%b} x' % many('{"command":"true"}', 5000)),
        (NewJobs, b'{"jobs":%b}' % many('{"command":"true",}', 5000)),
        (NewJobs, many('{"command":"true"}', 5000)),
        (NewClaims, b'{"worker_id":%b}' % many("0", 1_000_000)),
        (NewClaims, b'{"worker_id":%b}' % many(f"[{','.join(['0'] * 9000)}]", 100)),
        (NewClaims, orjson.dumps({f"{n}": 0 for n in range(200_000)})),
        (NewOutputs, orjson.dumps({"data": many_of(151, output={"text": "x" * 1000})})),
        (NewOutputs, b'{"data":%b}' % many("{}", 1_000_000)),
        (NewOutputs, b'{"data":%b,"data":%b}' % (many("1", 20_000), many("2", 20_000))),
        (Report, orjson.dumps({"result": [[1] * 9000] * 6})),
        (NewJobs, b" " * 70_000),
    ],
)
def test_too_many_of_anything_and_what_is_no_json_is_refused_before_it_is_validated(
    model: type[BaseModel], raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = lengths_of_calls(monkeypatch)
    with pytest.raises((InvalidFields, InvalidRequest)):
        large.parse(model, raw)
    assert max(longest, default=0) <= SLICE


def lengths_of_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list to which the length of each text is added that is validated in one call."""
    lengths: list[int] = []
    validated = large._validated

    def noted(what: Any, text: bytes, *rest: Any) -> Any:
        lengths.append(len(text))
        return validated(what, text, *rest)

    monkeypatch.setattr(large, "_validated", noted)
    return lengths


@pytest.mark.parametrize("document", [jobs(20_000), {"command": "true", "array": {"values": VALUES * 5}}])
def test_no_call_gets_more_than_a_slice(document: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """[100,000 jobs were one call of three seconds, and a million values one of half a second.]"""
    lengths = lengths_of_calls(monkeypatch)
    raw = orjson.dumps(document)
    large.parse(NewJobs if "jobs" in document else NewJob, raw)
    assert max(lengths) <= SLICE
    assert len(lengths) > len(raw) / SLICE
    assert all(len(piece) < 2 * SLICE for piece in slices.canonical(slices.take_apart(raw)))


def test_what_concerns_all_jobs_of_a_large_workflow_is_checked() -> None:
    document = jobs(3000, final=True)
    document["jobs"][0]["final"] = True
    with pytest.raises(InvalidFields, match="a workflow can have only one final job"):
        large.parse(NewWorkflow, orjson.dumps(document))


def test_a_list_in_pieces_is_the_list() -> None:
    for size in (1, 499, 500, 501, 1000, 1001):
        documents = [{"n": n} for n in range(size)]
        pieces = large.written_list(iter(documents))
        assert orjson.loads(b"".join(pieces)) == {"data": documents, "next_cursor": None}
        assert len(pieces) == 1 + 2 * -(-size // large.MANY)


@pytest.mark.parametrize("bench", ["fake"], indirect=True)
async def test_a_large_submission_is_parsed_outside_the_event_loop(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: dict[str, tuple[bool, bool]] = {}

    def noted(place: str, work: Any) -> None:
        def call(*args: Any) -> Any:
            called[work.__name__] = (threading.current_thread() is loop, gc.isenabled())
            return work(*args)

        monkeypatch.setattr(place, call)

    loop = threading.current_thread()
    noted("api.http.body.parse_large", large.parse)
    noted("api.http.idempotency.fingerprint", large.fingerprint)
    noted("api.routes.submissions._independent", submissions._independent)
    noted("api.routes.submissions.written_list", large.written_list)
    noted("api.routes.submissions.release", large.release)
    answer = await client.post("/jobs/bulk", json=jobs(2000), headers={"idempotency-key": "large"})
    assert (answer.status_code, len(answer.json()["data"])) == (201, 2000)
    assert answer.headers["content-length"] == str(len(answer.content))
    works = ("parse", "_independent", "fingerprint", "written_list", "release")
    assert called == dict.fromkeys(works, (False, False))
    assert gc.isenabled()
    refused = await client.post("/jobs/bulk", json=jobs(2000, command=1))
    assert (refused.status_code, gc.isenabled()) == (422, True)


@pytest.mark.parametrize("bench", ["fake"], indirect=True)
@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("/exchange", {"worker_id": "w", "results": many_of(20, output={"text": BIG})}),
        ("/outputs", {"data": many_of(20, output={"text": BIG})}),
        ("/jobs/actions", {"action": "retry", "dry_run": True, "filter": {"error": BIG}}),
        ("/jobs/0000000000000000000000/done", {"result": [[1] * 9000] * 5}),
        ("/claims", {"worker_id": "w", "queues": [BIG]}),
    ],
)
async def test_what_was_no_submission_was_read_on_the_event_loop_whatever_its_size(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, path: str, document: Any
) -> None:
    """32 MB of nothing took up to twelve seconds, in which heartbeats were not answered."""
    threads: list[threading.Thread] = []

    def parse(*args: Any) -> Any:
        threads.append(threading.current_thread())
        return large.parse(*args)

    monkeypatch.setattr("api.http.body.parse_large", parse)
    answer = await client.post(path, json=document)
    assert answer.status_code in (200, 404, 422)
    assert len(threads) == 1
    assert threads != [threading.current_thread()]


@pytest.mark.parametrize("bench", ["fake"], indirect=True)
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/claims"), ("POST", "/jobs/actions"), ("POST", "/workers/w/drain"), ("PUT", "/schedules/s")],
)
async def test_what_says_one_thing_is_not_read_beyond_two_megabytes(
    client: httpx2.AsyncClient, method: str, path: str
) -> None:
    answer = await client.request(method, path, json={"worker_id": "x" * body.MOST_OF_ONE})
    assert answer.status_code == 413


def test_garbage_was_not_collected_while_one_large_body_came_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(large, "time", SimpleNamespace(monotonic=lambda: now_s))
    before = ExitStack()
    before.enter_context(large.without_collections(large=True))
    for _ in range(10):
        now_s += 1.0
        with before, ExitStack() as next_one:
            next_one.enter_context(large.without_collections(large=True))
            before = next_one.pop_all()
        if gc.isenabled():
            break
    assert gc.isenabled()
    before.close()
    assert gc.isenabled()


@pytest.mark.parametrize("bench", ["fake"], indirect=True)
async def test_a_large_body_is_the_repeat_of_a_small_one_that_says_the_same(client: httpx2.AsyncClient) -> None:
    document = jobs(500)
    compact = orjson.dumps(document)
    reordered = {"jobs": [dict(reversed(job.items())) for job in document["jobs"]]}
    wide = json.dumps(reordered, indent=20).encode()
    assert len(compact) < large.LARGE < len(wide)
    headers = KEYED | {"idempotency-key": "same"}
    first = await client.post("/jobs/bulk", content=compact, headers=headers)
    second = await client.post("/jobs/bulk", content=wide, headers=headers)
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.headers["idempotency-replayed"] == "true"
    other = orjson.dumps(jobs(500, command="other"))
    assert (await client.post("/jobs/bulk", content=other, headers=headers)).status_code == 409
