"""Pytest plugin: how many tests ran on each server, and no silent gaps in CI.

`WORKRON_ZERO_SKIPS=1` makes a run with any skipped test fail; `WORKRON_TEST_SERVERS=fake,valkey,redis` makes
a run fail in which no test ran on one of these. A test's id names its servers: `test_claim[valkey-3]`.
A run that is spread over several processes is counted as one.
"""

import os
from collections import Counter
from typing import Final

import pytest

NAMES: Final = {"fake": "fakeredis", "valkey": "valkey", "redis": "redis", "cluster": "redis cluster"}


class ServerSummary:
    """Counts reports as they come, and turns a gap into a failed run."""

    def __init__(self, *, zero_skips: bool, required: frozenset[str]) -> None:
        self.zero_skips = zero_skips
        self.required = required
        self.ran: Counter[str] = Counter()
        self.skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skipped.append(report.nodeid)
        elif report.when == "call":
            self.ran.update(servers_of(report.nodeid) or {"no server"})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.skipped.append(report.nodeid)

    def gaps(self) -> list[str]:
        """Return, in words, what keeps this run from proving what it should."""
        gaps = [f"no test ran on {NAMES.get(name, name)}" for name in sorted(self.required - self.ran.keys())]
        if self.zero_skips:
            gaps += [f"skipped: {nodeid}" for nodeid in self.skipped]
        return gaps

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.OK and self.gaps():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("tests per server")
        for server in (*NAMES, "no server"):
            if self.ran[server]:
                terminalreporter.line(f"{NAMES.get(server, server):>14} {self.ran[server]}")
        for gap in self.gaps():
            terminalreporter.line(f"FAILED: {gap}", red=True)


def servers_of(nodeid: str) -> set[str]:
    """Return which servers the parameters in a test's id name: {"redis"} for `test_x.py::test_y[redis-3]`."""
    _, _, parameters = nodeid.partition("[")
    return set(parameters.rstrip("]").split("-")) & NAMES.keys()


def pytest_configure(config: pytest.Config) -> None:
    # Taken out: what the tests start would say that these are no settings.
    required = filter(None, os.environ.pop("WORKRON_TEST_SERVERS", "").split(","))
    zero_skips = os.environ.pop("WORKRON_ZERO_SKIPS", "") == "1"
    if not hasattr(config, "workerinput"):  # of several processes, the one that hears the reports of all counts
        config.pluginmanager.register(ServerSummary(zero_skips=zero_skips, required=frozenset(required)))
