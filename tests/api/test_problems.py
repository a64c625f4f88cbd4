"""Every error as the document that a client gets."""

import json
from typing import Any

import pytest
from starlette.responses import Response

from api import problems
from workron import errors

CASES: list[tuple[errors.WorkronError, int, str]] = [
    (errors.InvalidRequest("no", field="cursor"), 422, "validation"),
    (errors.UnknownDependency(["a"]), 422, "unknown-dependency"),
    (errors.DependencyCycle(["a", "b"]), 422, "dependency-cycle"),
    (errors.TooLarge("too large"), 413, "too-large"),
    (errors.NotFound("job", "x"), 404, "not-found"),
    (errors.Conflict("no"), 409, "conflict"),
    (errors.IdempotencyConflict("no"), 409, "idempotency-conflict"),
    (errors.StoreUnavailable("away"), 503, "store-unavailable"),
    (errors.StoreFull("full"), 503, "store-full"),
    (errors.StoreUnsuitable("old"), 500, "internal"),
]


def document(response: Response) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/problem+json"
    loaded: dict[str, Any] = json.loads(bytes(response.body))
    return loaded


@pytest.mark.parametrize(("error", "status", "slug"), CASES, ids=[type(case[0]).__name__ for case in CASES])
def test_an_error_becomes_its_problem(error: errors.WorkronError, status: int, slug: str) -> None:
    response = problems.from_error(error)
    answer = document(response)
    assert (response.status_code, answer["status"], answer["type"]) == (status, status, f"/problems/{slug}")
    assert answer["title"]


def test_details_that_a_program_can_use_stand_in_members_of_their_own() -> None:
    assert document(problems.from_error(CASES[0][0]))["errors"] == [{"loc": ["cursor"], "msg": "no"}]
    assert document(problems.from_error(CASES[1][0]))["job_ids"] == ["a"]
    assert document(problems.from_error(CASES[2][0]))["members"] == ["a", "b"]


def test_an_outage_says_when_to_come_back_in_whole_seconds() -> None:
    response = problems.from_error(errors.StoreUnavailable("away", retry_after_s=1.2))
    assert response.headers["retry-after"] == "2"


def test_what_a_client_cannot_cause_is_not_explained_to_it() -> None:
    assert "old" not in document(problems.from_error(errors.StoreUnsuitable("old")))["detail"]


def test_a_cycle_of_thousands_is_named_in_full_without_a_detail_of_any_length() -> None:
    members = [f"job-{number}" for number in range(5000)]
    answer = document(problems.from_error(errors.DependencyCycle(members)))
    assert answer["members"] == members
    assert len(answer["detail"]) <= 4000
