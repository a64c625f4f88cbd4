"""Each operation of the OpenAPI document as a request that could succeed: what is asked of all of them forgets none."""

from collections.abc import Iterator
from typing import Any

JOB = {"command": "true"}
JOB_ID = "03557DJR2dL0HA8BMGxsib"
HELD = {"id": JOB_ID, "fence": 1}
BODIES: dict[str, Any] = {
    "NewJobs": {"jobs": [JOB]},
    "NewClaims": {"worker_id": "w1"},
    "MaybeFenced": {"fence": 1},
    "JobBeat": {"fence": 1},
    "Report": {"fence": 1},
    "FailureReport": {"fence": 1},
    "NewExchange": {"worker_id": "w1", "released": [HELD]},
    "NewHeartbeats": {"worker": {"id": "w1"}, "held": [HELD]},
    "NewOutputs": {"data": [{**HELD, "output": {"text": "x"}}]},
    "NewWorker": {"id": "w1"},
}
"""Valid bodies, by their names in the OpenAPI document, where that has no example."""
VALUES = {
    **dict.fromkeys(("job_id", "workflow_id", "action_id", "key_id"), JOB_ID),
    "worker_id": "w1",
    "queue": "default",
    "schedule": "nightly",
    "fence": "1",
    "offset": "0",
}


def every_route(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method and target of each operation in the OpenAPI document, with a valid body."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            needed = [
                one["name"] for one in operation.get("parameters", ()) if one["in"] == "query" and one["required"]
            ]
            query = "&".join(f"{name}={VALUES[name]}" for name in needed)
            yield method.upper(), f"{path.format(**VALUES)}?{query}", body_of(operation, document)


def body_of(operation: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    if "requestBody" not in operation:
        return {}
    (content,) = operation["requestBody"]["content"].values()
    name = content["schema"].get("$ref", "").rpartition("/")[2]
    if not name:
        return {"content": b"x"}
    return {"json": BODIES.get(name) or document["components"]["schemas"][name]["examples"][0]}
