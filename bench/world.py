"""An API and a reaper on the bench's server, and a client that notes what takes longest."""

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Self

from bench.direct import SCRIPTS
from bench.plan import Plan
from bench.real import KEY, process, real_api
from bench.running import RunError
from workron.redis.scripts import Script

CHUNK: Final = 10_000
"""Jobs of one bulk submission."""
SLOW_US: Final = 1_000


@dataclass
class World:
    """Asks over one connection; another process asks all the time whether the API lives."""

    plan: Plan
    port: int
    request_ms: float = 0.0
    request: str = ""
    stopped_ms: float = 0.0

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
        """Note meanwhile how long the event loop stands still: the longest that /livez takes (see `bench.livez`)."""
        watcher = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "bench.livez", str(self.port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        if watcher.stdout is not None:
            watcher.stdout.readline()
        try:
            yield
        finally:
            said, _ = watcher.communicate()
        self.stopped_ms = max(self.stopped_ms, float(said))

    def longest_script(self) -> tuple[str, float]:
        """Return the script with the longest call since the server was cleared, and the ms of that call.

        The slowest hundredth of each script's calls is left out: the clock of a call goes on while other processes run.
        """
        names = {Script.load(name, shebang=True).sha: name for name in SCRIPTS}
        calls: dict[str, list[int]] = {}
        for row in self.plan.server.client.slowlog_get(10_000):
            word, _, rest = row["command"].decode(errors="replace").partition(" ")
            if word == "EVALSHA":
                calls.setdefault(names.get(rest[:40], rest[:40]), []).append(row["duration"])
        longest = {name: usual_longest(took_us) for name, took_us in calls.items()}
        name = max(longest, key=lambda name: longest[name], default="none over 1 ms")
        return name, longest.get(name, 0) / 1000


def usual_longest(took: Sequence[int]) -> int:
    """Return the longest after the slowest hundredth."""
    return sorted(took)[-1 - len(took) // 100]
