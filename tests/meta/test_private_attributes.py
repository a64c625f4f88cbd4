"""Tests use public attributes. The list has the files that need private ones: how often at most, and why."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]
ALLOWED: Final[dict[str, dict[str, int]]] = {
    "another library has no public name for it": {
        "cli/test_help.py": 1, "mutation/plugin.py": 2, "shared_lua.py": 5, "simulation/fake_redis.py": 5,
        "simulation/http.py": 2, "simulation/timeline.py": 3, "store/test_server.py": 2, "unit/test_topology.py": 11,
    },
    "a call of a script fails, comes twice, or another one comes in between": {
        "e2e/mortal_api.py": 2, "model/bridge.py": 2, "store/test_array_values.py": 4,
        "store/test_clock_set_back.py": 3, "store/test_regressions.py": 1,
        "store/test_schedules.py": 2, "store/test_submissions.py": 1,
        "store/test_waiting_counts.py": 4, "model/stage_rules.py": 1,
    },
    "the test waits until the API has received a request that stays open": {
        "api/test_cancels.py": 3, "api/test_claims.py": 5, "api/test_claims_undelivered.py": 4,
        "api/test_long_polls.py": 2, "security/test_queue_workers.py": 1,
    },
    "the memory of a process has a bound, or is written behind the answers": {
        "api/test_large_bodies.py": 2, "api/test_outages.py": 3, "security/test_audit_log.py": 3,
        "security/test_remembered_keys.py": 3, "store/test_reads.py": 3,
    },
    "the test sets a state that takes long to reach": {
        "doctor/test_doctor_regressions.py": 2, "faults/leaping_clock.py": 2, "store/test_attempts.py": 1,
        "store/test_damaged_entries.py": 2, "simulation/actors.py": 1, "snapshot.py": 1,
    },
    "a bug that is built in has the product's own parts": {"simulation/mutants.py": 2},
    "a worker is at a certain point of its loop, or its command is a certain process": {
        "commands.py": 2, "workers/test_claim_requests.py": 2, "workers/test_command_files.py": 1,
        "workers/test_command_files_removed.py": 3, "workers/test_executor.py": 2, "workers/test_guardian.py": 2,
        "workers/test_leases.py": 1, "workers/test_leftover_processes.py": 2, "workers/test_refusals.py": 4,
        "workers/test_sources.py": 6, "workers/test_stopping.py": 4, "workers/test_with_store.py": 1,
        "workers/test_worker.py": 8,
    },
}  # fmt: skip


def private_uses(source: str) -> Iterator[int]:
    """Yield the lines of uses of `x._name`, where x is not self, cls or super(). `os._exit` is documented."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = node.value.func if isinstance(node.value, ast.Call) else node.value
            if not (isinstance(owner, ast.Name) and owner.id in {"self", "cls", "super", "os"}):
                yield node.lineno


def test_tests_use_private_attributes_only_where_the_list_allows_it() -> None:
    found = {path.relative_to(TESTS).as_posix(): [*private_uses(path.read_text())] for path in TESTS.rglob("*.py")}
    most = {name: number for files in ALLOWED.values() for name, number in files.items()}
    assert {name: lines for name, lines in found.items() if len(lines) > most.get(name, 0)} == {}
    spare = {name: number for name, number in most.items() if len(found.get(name, ())) < number}
    assert spare == {}, "the list allows more than there is: lower it"


def test_uses_of_private_attributes_are_found() -> None:
    source = "self._a\nsuper()._b()\nx._c\nx.y._d = 1\nx.__class__\n"
    assert list(private_uses(source)) == [3, 4]
