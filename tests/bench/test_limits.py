"""How the bench finds what takes longest where there is much of everything."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench.plan import Plan
from bench.world import World, usual_longest

STALL_S = 0.3


class Stalling(BaseHTTPRequestHandler):
    """Answers /livez; each third answer is late."""

    protocol_version = "HTTP/1.1"
    asked = 0

    def do_GET(self) -> None:
        Stalling.asked += 1
        if Stalling.asked % 3 == 0:
            threading.Event().wait(STALL_S)
            self.server.stalled.set()  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Stalling) as made:
        made.stalled = threading.Event()  # type: ignore[attr-defined]
        serving = threading.Thread(target=made.serve_forever)
        serving.start()
        yield made
        made.shutdown()
        serving.join()


def test_a_stall_of_the_api_is_seen_by_a_process_of_its_own(server: ThreadingHTTPServer) -> None:
    """A thread saw the client's own JSON as a stall of the API."""
    world = World(cast(Plan, SimpleNamespace()), server.server_port)
    threads = threading.active_count()
    with world.watched():
        assert cast(Any, server).stalled.wait(60)
        handlers = 1
        assert threading.active_count() <= threads + handlers
    assert world.stopped_ms >= STALL_S * 1000


def test_the_slowest_hundredth_of_a_scripts_calls_is_left_out() -> None:
    assert usual_longest([3, 1, 2]) == 3
    assert usual_longest([*range(1, 100), 5_000]) == 99
    assert usual_longest([7] * 198 + [8_000, 9_000]) == 7
