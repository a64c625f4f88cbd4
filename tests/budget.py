"""Pytest plugin: what an everyday run leaves to a long one, `uv run pytest --soak` (`make soak`).

- Explorations (the model, the simulation, chaos, random histories) are shorter: `budget(usual, soak)`.
- Redis gets the tests of `ON_REDIS`; all others run on fakeredis and on Valkey.
- Tests with thousands of jobs (`large`) run on Valkey, but not on fakeredis, which takes ten times as long.

Tests that are named by file or by node run on every server.
"""

from typing import Any, Final, TypeVar

import pytest

from tests.spread import is_folder

ON_REDIS: Final = {
    # every script is called, and nearly all transitions happen
    "tests/fundamentals/": "a job's whole way",
    "tests/meta/": "every script compiles",
    "tests/model/": "every transition, in any order",
    "tests/store/test_jobs_at_random.py": "every transition, in any order",
    "tests/store/test_arrays_at_random.py": "arrays and their values",
    "tests/store/test_submissions.py": "all ways into the store",
    "tests/store/test_schedules.py": "all that fires",
    "tests/store/test_actions.py": "bulk actions",
    "tests/store/test_gates.py": "limits, and the end of a queue",
    "tests/store/test_maintenance.py": "retention, and the compaction of lists",
    "tests/store/test_poison.py": "the beginning of poison jobs",
    "tests/store/test_workers.py": "workers that drain and leave",
    # what the server answers: errors, types, numbers, JSON, memory, INFO
    "tests/store/test_server.py": "INFO, versions and settings",
    "tests/store/test_memory.py": "refusals of a server that is full",
    "tests/store/test_broken_keys.py": "errors about types",
    "tests/store/test_damaged_entries.py": "errors about types",
    "tests/store/test_refusals.py": "errors of scripts",
    "tests/store/test_lane.py": "the protocol",
    "tests/store/test_array_values.py": "cjson and its numbers",
    "tests/store/test_retry_policy.py": "numbers as text",
    "tests/store/test_history.py": "streams",
    "tests/store/test_output.py": "streams",
    "tests/store/test_reads.py": "long replies",
    # time, blocking and messages
    "tests/store/test_clock_set_back.py": "TIME in scripts",
    "tests/store/test_leases.py": "TIME and expiry in scripts",
    "tests/store/test_parking.py": "messages to requests that wait",
    "tests/api/test_long_polls.py": "messages to requests that wait",
    "tests/api/test_following.py": "streams that are followed",
    "tests/api/test_system.py": "INFO and health",
    "tests/api/test_server.py": "a server that stops",
    "tests/api/test_outages.py": "a server that stops",
    "tests/security/test_keys.py": "API keys",
    # the doctor reads every kind of key, and processes use all of it at once
    "tests/doctor/test_spot_check.py": "SCAN",
    "tests/doctor/test_rebuild.py": "the doctor",
    "tests/doctor/test_doctor_under_load.py": "the doctor",
    "tests/workers/test_with_store.py": "a worker",
    "tests/e2e/test_stopped_jobs.py": "workers and reapers",
    "tests/faults/": "a clock that is wrong",
}
"""Files and folders whose tests run on Redis, too, and what in them may depend on the server."""

_T = TypeVar("_T")
_soak = False


def budget(usual: _T, soak: _T) -> _T:
    """Return what a run may take: the second with `--soak`."""
    return soak if _soak else usual


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="long explorations in full, and every test on every server")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    global _soak  # a run has one budget, and modules ask for it as they are imported
    _soak = config.getoption("--soak")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _soak or not all(is_folder(argument) for argument in config.args):
        return
    elsewhere = {_id(item, "another") for item in items if _server(item) == "valkey"}
    left = [item for item in items if _id(item, "another") in elsewhere and not _runs(item)]
    if left:
        config.hook.pytest_deselected(items=left)
        gone = set(left)
        items[:] = [item for item in items if item not in gone]


def _runs(item: pytest.Item) -> bool:
    match _server(item):
        case "redis":
            return item.nodeid.startswith(tuple(ON_REDIS))
        case "fake":
            return item.get_closest_marker("large") is None
    return True


def _server(item: pytest.Item) -> str | None:
    """Return which server a test runs on, if it runs on several kinds."""
    params: dict[str, Any] = (
        item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    )
    return next((str(params[name]) for name in ("bench", "url", "kind") if name in params), None)


def _id(item: pytest.Item, server: str) -> str:
    """Return a test's id with another server in it: the same for its twins."""
    name, _, parameters = item.nodeid.partition("[")
    return f"{name}[{parameters.replace(str(_server(item)), server, 1)}"
