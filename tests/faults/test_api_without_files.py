"""The API may open no further file: who is connected is served, others are told to come later, and no core is burnt."""

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.cores import used_s
from tests.e2e.up import Up
from tests.local.probe import wait_for

pytestmark = [pytest.mark.chaos]

JOB = {"command": "true"}
ASK = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    with Up(tmp_path, "--slots", "1", WORKRON_LOG_FORMAT="json") as up:
        up.start()
        yield up


@contextmanager
def files_limited(pid: int, most: int) -> Iterator[None]:
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, hard))
    yield
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


def open_files(pid: int) -> list[int]:
    return [int(name) for name in os.listdir(f"/proc/{pid}/fd")]


def connect(up: Up) -> socket.socket:
    connection = socket.create_connection((up.http.base_url.host, up.http.base_url.port), timeout=5)
    connection.sendall(ASK)
    return connection


def is_served(up: Up) -> bool:
    with connect(up) as connection:
        return b" 200 " in connection.recv(4096)


def test_new_connections_get_503_and_established_ones_continue(up: Up) -> None:
    api = up.pids["api"]
    assert up.http.post("/jobs", json=JOB).status_code == 201
    before_s = used_s(api)
    with files_limited(api, max(open_files(api)) + 6), ExitStack() as stack:
        connections = [stack.enter_context(connect(up)) for _ in range(60)]
        answers = [connection.recv(4096).partition(b"\r\n")[0] for connection in connections]
        refused = answers.count(b"HTTP/1.1 503 Service Unavailable")
        assert refused > 40
        assert answers.count(b"HTTP/1.1 200 OK") == 60 - refused
        assert up.http.post("/jobs", json=JOB).status_code == 201
        with pytest.raises(httpx2.HTTPStatusError, match="503"), httpx2.Client(trust_env=False) as another:
            another.get(up.http.base_url).raise_for_status()
    wait_for(lambda: is_served(up), "service to everybody")
    assert used_s(api) - before_s < 2
    assert len(up.entries("out of file descriptors, connections are refused")) == 1
    assert not [line for line in up.log_file.read_text().splitlines() if '"error"' in line]


def test_without_even_the_descriptor_in_reserve_connections_wait_and_no_core_is_burnt(up: Up) -> None:
    api = up.pids["api"]
    assert up.http.post("/jobs", json=JOB).status_code == 201
    with ExitStack() as stack:
        with files_limited(api, 3):
            before_s = used_s(api)
            connections = [stack.enter_context(connect(up)) for _ in range(20)]
            wait_for(lambda: "out of system resource" in up.log_file.read_text(), "the line that says so")
            for _ in range(6):
                assert up.http.post("/jobs", json=JOB).status_code == 201
                connections[0].settimeout(0.4)
                with pytest.raises(TimeoutError):
                    connections[0].recv(4096)
            assert used_s(api) - before_s < 1
            assert up.log_file.read_text().count("out of system resource") <= 6
        for connection in connections:
            connection.settimeout(10)
            assert b" 200 " in connection.recv(4096)
