"""An API and a reaper on the bench's server, and a client that notes what takes longest."""

import http.client
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self

from bench.plan import Plan
from bench.real import KEY, process, real_api
from bench.running import RunError

CHUNK: Final = 10_000
"""Jobs of one bulk submission."""
LOOK_S: Final = 0.005
SLOW_US: Final = 1_000


@dataclass
class World:
    """Asks over one connection; a second one asks all the time whether the API lives."""

    plan: Plan
    port: int
    request_ms: float = 0.0
    request: str = ""
    stopped_ms: float = 0.0
    _ending: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)

    @classmethod
    @contextmanager
    def on(cls, plan: Plan) -> Iterator[Self]:
        """Start an API and a reaper on an empty server; end them."""
        plan.server.clear()
        plan.server.client.config_set("slowlog-log-slower-than", SLOW_US)
        plan.server.client.config_set("slowlog-max-len", 10_000)
        with real_api(plan.server.url) as port, process("reaper", "--redis", plan.server.url):
            yield cls(plan, port)

    def send(self, method: str, path: str, body: object = None) -> Any:
        """Ask, and return the answer, or the text of one that is no JSON; RunError for one that is no success."""
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
        self._http.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self._http.getresponse()
        text = answer.read()
        if answer.status >= 400:
            raise RunError(f"{method} {path}: {answer.status} {text[:200].decode(errors='replace')}")
        return json.loads(text) if text.startswith((b"{", b"[")) else text.decode(errors="replace")

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Ask, and note how long the answer took."""
        began = time.perf_counter()
        answer = self.send(method, path, body)
        took = (time.perf_counter() - began) * 1000
        if took > self.request_ms:
            self.request_ms, self.request = took, f"{method} {path}"
        return answer

    def submit(self, jobs: Sequence[object]) -> list[str]:
        """Submit in bulk and return the ids; what that takes is not noted."""
        found: list[str] = []
        for start in range(0, len(jobs), CHUNK):
            answer = self.send("POST", "/jobs/bulk", {"jobs": jobs[start : start + CHUNK]})
            found += [job["id"] for job in answer["data"]]
        return found

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note meanwhile how long the event loop stands still: the longest that /livez takes."""
        self._ending.clear()
        watcher = threading.Thread(target=self._watch)
        watcher.start()
        try:
            yield
        finally:
            self._ending.set()
            watcher.join()

    def _watch(self) -> None:
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while not self._ending.wait(LOOK_S):
            began = time.perf_counter()
            client.request("GET", "/livez")
            client.getresponse().read()
            self.stopped_ms = max(self.stopped_ms, (time.perf_counter() - began) * 1000)
        client.close()

    def longest_script(self) -> tuple[str, float]:
        """Return the script call that took longest since the server was cleared, and its ms."""
        found = self.plan.server.client.slowlog_get(10_000)
        calls = [(row["duration"], row["command"]) for row in found if row["command"].startswith(b"EVAL")]
        if not calls:
            return "none over 1 ms", 0.0
        took_us, command = max(calls)
        return command.decode(errors="replace")[:48], took_us / 1000
