"""The OpenAPI document against the running server: what it says is what happens."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from pydantic import SecretStr, TypeAdapter, ValidationError
from schemathesis.config import SchemathesisConfig
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from api.app import create_app
from api.http.queries import WaitSeconds
from tests.api.live import AUTHORIZATION, KEY, START, environment
from tests.budget import budget
from tests.builders import WORKER
from tests.patience import Patience
from tests.plain_http import NO_AUTHORITIES
from workron.models.actions import Verb
from workron.settings import Settings
from workron.store import Store

NAMESPACE = f"openapi-{os.getpid()}"
DOCUMENT = create_app(None, Settings(), KEY).openapi()  # type: ignore[arg-type] # no route is called
NO_KEY = "03557DJR2dL0HA8BMGxsib"
"""An id of no key: else the first request that revokes it leaves the others none."""
OPERATIONS = [operation for operations in DOCUMENT["paths"].values() for operation in operations.values()]


def without_huge_limits(node: Any) -> Any:
    """Leave out the limits that only bodies of megabytes reach: they have tests of their own."""
    if isinstance(node, dict):
        huge = {name for name in ("maxLength", "maxItems") if node.get(name, 0) >= 10_000}
        return {name: without_huge_limits(value) for name, value in node.items() if name not in huge}
    return [without_huge_limits(item) for item in node] if isinstance(node, list) else node


api = schemathesis.openapi.from_dict(
    without_huge_limits(DOCUMENT),
    config=SchemathesisConfig.from_dict({"auth": {"openapi": {"key": {"bearer": KEY}}}}),
)


@pytest.fixture(scope="module")
def server(valkey_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API as a process of its own on a real server."""
    folder = tmp_path_factory.mktemp("api")
    port, env = environment(valkey_url, NAMESPACE, folder)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-c", START], env=env, stderr=log, cwd=folder)
    url = f"http://127.0.0.1:{port}"
    _wait_until_it_answers(url, process)
    yield url
    process.terminate()
    assert process.wait(30) == 0
    assert "Traceback" not in (folder / "log").read_text()


def _wait_until_it_answers(url: str, process: "subprocess.Popen[bytes]") -> None:
    patience = Patience(60)
    while process.poll() is None and not patience.is_over:
        try:
            httpx2.get(f"{url}/livez", verify=NO_AUTHORITIES)
        except httpx2.TransportError:
            time.sleep(0.05)  # it starts: there is nothing yet to wait on; at most 60 s
        else:
            return
    pytest.fail("the API does not answer")


@pytest.fixture(scope="module")
def client(server: str) -> Iterator[httpx2.Client]:
    """One for all requests that the tests send by themselves: a client and its connection cost more than a request."""
    with httpx2.Client(base_url=server, headers=AUTHORIZATION, verify=NO_AUTHORITIES) as client:
        yield client


@pytest.fixture(scope="module")
def known(client: httpx2.Client) -> dict[str, str]:
    """Ids of what exists: a workflow and its job, which has ended, so that waiting for it and following it end too."""
    workflow = client.post("/workflows", json={"jobs": [{"name": "a", "command": "true"}]}).json()
    job_id = workflow["jobs"][0]["id"]
    client.post(f"/jobs/{job_id}/cancel").raise_for_status()
    action = client.post("/jobs/actions", json={"action": "retry", "filter": {}, "dry_run": True}).json()
    known = {"workflow_id": workflow["id"], "job_id": job_id, "worker_id": WORKER.id, "queue": "limited"}
    return known | {"action_id": action["id"], "schedule": "nightly", "key_id": NO_KEY}


@pytest.fixture(scope="module")
def beat(valkey_url: str) -> Iterator[Callable[[], None]]:
    """Makes the worker known, which the operation before may have forgotten."""
    with asyncio.Runner() as runner:
        connecting = Store.connect(Settings(redis=SecretStr(valkey_url), namespace=NAMESPACE))
        store = runner.run(connecting.__aenter__())
        yield lambda: runner.run(store.attempts.heartbeat(WORKER, []))
        runner.run(connecting.__aexit__(None, None, None))


def test_the_running_server_hands_out_this_document(client: httpx2.Client) -> None:
    assert client.get("/openapi.json").json() == DOCUMENT


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation["operationId"])
def test_every_error_of_an_operation_is_a_documented_problem(operation: dict[str, Any]) -> None:
    for status, answer in operation["responses"].items():
        if int(status) >= 400:
            assert list(answer["content"]) == ["application/problem+json"]
            for example in answer["content"]["application/problem+json"]["examples"].values():
                assert example["value"]["status"] == int(status)


def test_the_document_describes_every_body_that_it_refers_to() -> None:
    named = set(re.findall(r"#/components/schemas/(\w+)", str(DOCUMENT)))
    assert named - set(DOCUMENT["components"]["schemas"]) == set()


def test_operations_of_queues_were_tagged_system() -> None:
    tags = {
        (path.split("/")[1], tag)
        for path, each in DOCUMENT["paths"].items()
        for operation in each.values()
        for tag in operation["tags"]
    }
    assert {tag for name, tag in tags if name == "queues"} == {"queues"}
    assert {name for name, tag in tags if tag == "system"} == {"livez", "readyz", "health"}


def test_the_text_below_a_field_describes_it_in_the_document() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas["Claim"]["properties"]["fence"]["description"].startswith("Grows with every claim;")
    assert (
        schemas["FailureReport"]["properties"]["error"]["description"]
        == schemas["Report"]["properties"]["error"]["description"]
    ), "a field of a base"
    assert "description" in schemas["Report"]["properties"]["fence"]
    assert "description" not in schemas["JobResult"]["properties"]["fence"], "a field that replaces that of a base"
    assert "description" not in schemas["Claim"]["properties"]["attempt"]


def test_operations_have_short_ids_of_their_own() -> None:
    assert [operation["operationId"] for operation in OPERATIONS] == [
        "submit_job",
        "list_jobs",
        "submit_jobs",
        "submit_workflow",
        "add_jobs",
        "claim_jobs",
        "next_job",
        "list_cancels",
        "order_action",
        "list_actions",
        "get_action",
        "abort_action",
        "get_job",
        "delete_job",
        "get_output",
        "write_output",
        "get_parents",
        "explain_job",
        "cancel_job",
        "retry_job",
        "get_workflow",
        "cancel_workflow",
        "heartbeat_job",
        "finish_job",
        "fail_job",
        "release_job",
        "exchange",
        "heartbeat",
        "write_outputs",
        "register_worker",
        "heartbeat_worker",
        "list_queues",
        "change_queue",
        "delete_queue",
        "pause_queue",
        "resume_queue",
        "purge_queue",
        "list_schedules",
        "put_schedule",
        "get_schedule",
        "delete_schedule",
        "pause_schedule",
        "resume_schedule",
        "run_schedule",
        "list_workers",
        "get_worker",
        "forget_worker",
        "drain_worker",
        "list_keys",
        "create_key",
        "revoke_key",
        "list_audit",
        "livez",
        "readyz",
        "health",
    ]


MISFITS: Final = (
    "depends_on names a job twice",
    "two jobs of this workflow",
    "matching requires an array",
    "selects more than 100,000 tasks",
    "selects no task",
    "not a cron expression",
    "never comes",
    "not a time zone",
    "a schedule",
    "is longer than",
    "a final job has",
    "a workflow can have only one final job",
    "no job can depend on the final one",
    "an array holds its unique key",
    "`to`, with",
    "a key with the scope admin",
    *(f"{verb} applies to jobs that are" for verb in Verb),
)


def accepts_what_is_valid(_: Any, response: Any, case: schemathesis.Case) -> None:
    """Valid data may only be refused for what no schema can say: unknown ids, what does not fit, cursors."""
    if case.meta is None or case.meta.generation.mode is not GenerationMode.POSITIVE or response.status_code != 422:
        return
    problem = response.json()
    beyond = [{"loc": ["cursor"], "msg": "invalid cursor"}]
    told = [fault["msg"] for fault in problem.get("errors", [])]
    beyond_all = ("is nested more than", "out of range", " is before the time at which the job may start")
    misfit = any(msg.startswith(MISFITS) or any(part in msg for part in beyond_all) for msg in told)
    assert problem["type"] == "/problems/unknown-dependency" or misfit or problem["errors"] == beyond, problem


def is_a_wait(value: Any, *, in_body: bool) -> bool:
    if in_body and type(value) not in (int, float):
        return False
    try:
        TypeAdapter(WaitSeconds).validate_python(value)
    except ValidationError:
        return False
    return True


def finished_job(client: httpx2.Client) -> str:
    """A job that may be deleted: the others are still needed."""
    job_id: str = client.post("/jobs", json={"command": "true"}).json()["id"]
    client.post(f"/jobs/{job_id}/cancel").raise_for_status()
    return job_id


def do_not_wait(case: schemathesis.Case) -> None:
    """Shorten waits that the server would take; a request that is wrong on purpose may yet be taken, waits and all."""
    case.headers = {name: value for name, value in (case.headers or {}).items() if name.lower() != "prefer"}
    in_body = case.operation.method.upper() == "POST"
    place = case.body if in_body else case.query
    if isinstance(place, dict) and is_a_wait(place.get("wait"), in_body=in_body):
        place["wait"] = 0


@api.parametrize()
@hypothesis_settings(
    max_examples=budget(5, 15), deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
def test_every_operation_answers_as_documented(
    case: schemathesis.Case, server: str, client: httpx2.Client, known: dict[str, str], beat: Callable[[], None]
) -> None:
    if "{worker_id}" in case.path:
        beat()
    if case.path_parameters and not (case.meta and case.meta.is_negative_at(ParameterLocation.PATH)):
        case.path_parameters = {name: known[name] for name in case.path_parameters}
    if "{schedule}" in case.path:
        work = {"cron": "@yearly", "job": {"command": "true"}}
        client.put(f"/schedules/{known['schedule']}", json=work)
    operation = case.operation.definition.raw["operationId"]
    if operation == "delete_job" and case.path_parameters == {"job_id": known["job_id"]}:
        case.path_parameters = {"job_id": finished_job(client)}
    if operation == "retry_job":
        client.post(f"/jobs/{known['job_id']}/cancel")
    if operation in {"next_job", "claim_jobs", "list_cancels"}:
        do_not_wait(case)
    case.call_and_validate(
        base_url=server,
        additional_checks=[accepts_what_is_valid],
        excluded_checks=[positive_data_acceptance],
        timeout=30,
    )
    if operation == "retry_job":
        client.post(f"/jobs/{known['job_id']}/cancel")
