"""The `workron` command as tests run it: real processes, on pipes or on a terminal, and an API that does as told."""

import fcntl
import json
import os
import pty
import ssl
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

TIMEOUT_S = 60
LAUNCH = (sys.executable, "-m", "workron")


@dataclass(frozen=True)
class Ran:
    """What a command left: exit code, stdout and stderr."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Stdout read as JSON."""
        return json.loads(self.out)

    @property
    def documents(self) -> list[Any]:
        """Stdout read as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


class CommandLine:
    """Runs `workron` with an environment and a directory of its own."""

    def __init__(self, env: Mapping[str, str], cwd: Path) -> None:
        self.env = dict(env)
        self.cwd = cwd

    def __call__(self, *args: str, given: str | bytes = b"", **env: str) -> Ran:
        data = given.encode() if isinstance(given, str) else given
        done = subprocess.run(
            [*LAUNCH, *args], input=data, capture_output=True, env=self.env | env, cwd=self.cwd, timeout=TIMEOUT_S
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *args: str, **env: str) -> "subprocess.Popen[bytes]":
        """Start a command without waiting for it; stdout and stderr are pipes."""
        return subprocess.Popen(
            [*LAUNCH, *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.env | env,
            cwd=self.cwd,
        )

    def on_terminal(self, *args: str, columns: int = 80, **env: str) -> Ran:
        """Run a command whose stdout is a terminal of this width."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen(
            [*LAUNCH, *args],
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.PIPE,
            env=self.env | {"TERM": "xterm-256color"} | env,
            cwd=self.cwd,
        )
        os.close(theirs)
        shown = b"".join(read_terminal(ours))
        os.close(ours)
        _, err = process.communicate(timeout=TIMEOUT_S)
        return Ran(process.returncode, shown.decode().replace("\r\n", "\n"), err.decode())


def read_terminal(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(descriptor, 65536)
        except OSError:  # the other end is closed
            return
        if not data:
            return
        yield data


@dataclass
class Call:
    """A request as the scripted API received it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    port: int
    """The port of the caller: the same for all requests of one connection."""
    at: float = field(default_factory=time.monotonic)


@dataclass
class Answer:
    """What the scripted API answers.

    `breaks` closes the connection before the body is complete; `stalls` leaves it open, and sends no more.
    """

    document: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    breaks: bool = False
    stalls: bool = False

    @property
    def body(self) -> bytes:
        return json.dumps(self.document).encode() if self.raw is None else self.raw


def problem(status: int, slug: str, detail: str, **extras: Any) -> Answer:
    """An error as the API answers it; headers are given as `headers`."""
    headers = {"content-type": "application/problem+json", **extras.pop("headers", {})}
    document = {"type": f"/problems/{slug}", "title": slug, "status": status, "detail": detail, **extras}
    return Answer(document, status, headers)


class ScriptedApi:
    """An HTTP server that answers what the test says, and keeps what it was asked."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.answer: Callable[[Call], Answer] = lambda _: problem(404, "not-found", "nothing is scripted")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def script(self, *answers: Answer) -> None:
        """Give these answers in turn, the last one for ever."""
        left = list(answers)
        self.answer = lambda _: left.pop(0) if len(left) > 1 else left[0]

    def secure(self, context: ssl.SSLContext) -> None:
        """Speak TLS."""
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = self.url.replace("http://", "https://")

    @contextmanager
    def serving(self) -> Iterator["ScriptedApi"]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                length = int(self.headers.get("content-length", 0))
                body = json.loads(self.rfile.read(length)) if length else None
                parts = urlsplit(self.path)
                headers = {name.lower(): value for name, value in self.headers.items()}
                call = Call(
                    self.command, parts.path, dict(parse_qsl(parts.query)), headers, body, self.client_address[1]
                )
                api.calls.append(call)
                self.respond(api.answer(call))

            def respond(self, answer: Answer) -> None:
                missing = 1 if answer.breaks or answer.stalls else 0
                self.send_response(answer.status)
                for name, value in {"content-type": "application/json", **answer.headers}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(answer.body) + missing))
                self.end_headers()
                self.wfile.write(answer.body)
                if answer.stalls:
                    self.rfile.read(1)  # until the client has had enough
                self.close_connection = bool(missing)

            do_GET = do_POST = handle_any  # noqa: N815 - the names are http.server's

            def log_message(self, *_: object) -> None:
                """Keep quiet."""

        return Handler


def job_document(**fields: Any) -> dict[str, Any]:
    """A job as the API returns it."""
    return {
        "id": "03557DJR2dL0HA8BMGxsib",
        "run": 1,
        "status": "pending",
        "reason": None,
        "command": "true",
        "argv": None,
        "array": None,
        "task": None,
        "name": None,
        "tags": [],
        "metadata": {},
        "result": None,
        "progress": None,
        "queue": "default",
        "concurrency": None,
        "priority": 5,
        "unique": None,
        "attempts": 0,
        "max_attempts": 3,
        "retry": None,
        "retry_on_exit": [],
        "no_retry_on_exit": [],
        "timeout": None,
        "env": {},
        "cwd": None,
        "created_at": "2026-03-01T09:30:00.250Z",
        "run_at": None,
        "deadline": None,
        "expires": None,
        "started_at": None,
        "finished_at": None,
        "last_heartbeat": None,
        "cancel_requested_at": None,
        "worker": None,
        "exit_code": None,
        "signal": None,
        "error": None,
        "depends_on": [],
        "dependencies": [],
        "dependency_count": 0,
        "workflow": None,
        "final": False,
    } | fields


def job_list(*jobs: dict[str, Any], next_cursor: str | None = None) -> Answer:
    """A page of jobs as the API answers it."""
    return Answer({"data": list(jobs), "next_cursor": next_cursor})
