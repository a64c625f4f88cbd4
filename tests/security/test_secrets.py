"""Secrets stay where they belong: not in command lines, logs, other processes, or the commands of jobs."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.up import Up, descendants
from tests.local.probe import command_line, wait_for
from tests.servers import start_server
from workron.local.valkey import server_binary

PASSWORD = "correct-horse-battery-staple"
EVIL = '\x1b]0;pwned\x07\n2030-01-01T00:00:00.000Z error up forged=1\r\n{"event": "forged"}\u202e%s%n{0}'
PROBE = """
env -0 | tr '\\0' '\\n'
echo "--- files"
for f in /proc/self/fd/*; do echo "$f $(readlink $f)"; done
"""


class Place:
    """A `workron up` on a server with a password."""

    def __init__(self, home: Path, log_format: str) -> None:
        self.folder = home / "redis"
        self.folder.mkdir(parents=True)
        self.server = self.start()
        url = f"unix://:{PASSWORD}@{self.folder / 'redis.sock'}"
        self.up = Up(home, WORKRON_REDIS=url, WORKRON_LOG_LEVEL="debug", WORKRON_LOG_FORMAT=log_format)

    def start(self) -> "subprocess.Popen[bytes]":
        return start_server(server_binary(), self.folder, "--requirepass", PASSWORD)

    def run(self, command: str, **fields: Any) -> str:
        job = self.up.http.post("/jobs", json={"command": command, **fields}).json()
        ended = self.up.http.get(f"/jobs/{job['id']}?wait=30").json()
        assert ended["status"] == "done", ended
        return self.up.http.get(f"/jobs/{job['id']}/output").text


@pytest.fixture
def log_format() -> str:
    return "json"


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory, log_format: str) -> Iterator[Place]:
    with ExitStack() as stack:
        place = Place(tmp_path_factory.mktemp("up"), log_format)
        stack.callback(lambda: (place.server.kill(), place.server.wait(10)))
        stack.enter_context(place.up)
        place.up.start()
        yield place


def key_of(up: Up) -> str:
    return str(up.http.headers["authorization"].removeprefix("Bearer "))


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def test_secrets_are_in_no_command_line_log_or_command(place: Place) -> None:
    up = place.up
    made = up.http.post("/keys", json={"name": "ci", "scopes": ["submit"]}).json()["key"]
    secrets = [PASSWORD, key_of(up), made, made.rpartition(".")[2]]
    output = place.run(PROBE)
    shown, _, files = output.partition("--- files")
    assert "WORKRON_JOB_ID" in shown
    assert len(files.split()) >= 6
    own = {line.split()[1] for line in files.strip().splitlines() if len(line.split()) > 1}
    assert all(re.match(r"/dev/null|pipe:|/proc/\d+/fd$", name) for name in own), own
    variables = {line.partition("=")[0] for line in shown.splitlines() if "=" in line}
    ours = {"JOB_ID", "ATTEMPT", "FENCE", "GUARD", "QUEUE", "URL", "RESULT", "CONTROL", "PARENTS"}
    assert {name for name in variables if name.startswith("WORKRON_")} <= {f"WORKRON_{name}" for name in ours}
    assert not any(secret in output for secret in secrets), "a job was shown a secret"

    pids = up.pids
    for pid in [pids["supervisor"], *descendants(pids["supervisor"])]:
        line = command_line(pid)
        assert not any(secret.encode() in line for secret in secrets), line
    for name in ("worker", "reaper", "guardian"):
        assert key_of(up).encode() not in environment_of(pids[name]), name
    assert PASSWORD.encode() not in environment_of(pids["guardian"])

    for wrong in (made[:-1] + "!", key_of(up)[:-1] + "!", "wf1.x.y.z.1.2"):
        with httpx2.Client(base_url=str(up.http.base_url), headers={"authorization": f"Bearer {wrong}"}) as stranger:
            assert stranger.get("/jobs").status_code == 401
    place.server.kill()
    place.server.wait(10)
    wait_for(lambda: b"redis unavailable" in up.log_file.read_bytes(), "a line about the outage")
    for key in (key_of(up), made):
        with httpx2.Client(base_url=str(up.http.base_url), headers={"authorization": f"Bearer {key}"}) as client:
            client.post("/jobs", json={"command": "true"})
    place.server = place.start()
    wait_for(lambda: b"redis available" in up.log_file.read_bytes(), "a line about the end of the outage")
    text = up.log_file.read_text()
    assert not any(secret in text for secret in secrets)


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_what_users_send_makes_no_line_of_a_log(place: Place, log_format: str) -> None:
    up = place.up
    job = {"command": "echo $0; exit 3", "name": EVIL, "tags": [EVIL], "env": {"X": EVIL}, "max_attempts": 1}
    up.http.post("/jobs", json=job | {"name": EVIL.replace("\n", "")[:100]})
    up.http.post("/jobs", json=job)
    up.http.post("/jobs", json={"argv": [f"/nowhere/{EVIL}", "--help", "-rf"], "max_attempts": 1})
    up.http.post("/jobs", json={"command": "true", "cwd": f"/nowhere{EVIL}", "max_attempts": 1})
    one_line = EVIL.encode().replace(b"\n", b"").replace(b"\r", b"")
    for header in ("user-agent", "x-forwarded-for", "authorization", "idempotency-key"):
        up.http.post("/jobs", json={"command": "true"}, headers={header: one_line})
    up.http.get("/jobs/" + "".join(f"%{byte:02X}" for byte in EVIL.encode()))
    up.http.post("/workers/register", json={"id": "w", "host": EVIL, "version": EVIL})
    wait_for(lambda: all(one["status"] != "pending" for one in up.http.get("/jobs").json()["data"]), "all to end")
    place.run("true")
    text = up.log_file.read_text()
    assert "\x1b" not in text
    assert "\u202e" not in text
    for line in text.splitlines():
        if log_format == "json" and line.startswith("{"):
            assert json.loads(line)["event"] != "forged"
        assert not line.startswith(("2030-01-01", '{"event": "forged"'))


def test_a_job_is_an_argument_and_never_an_option_or_a_format(place: Place) -> None:
    """Programs, arguments and variables come through as they are, whatever they look like."""
    odd = ["--", "-n", "--help", "%s%n", "{0.__class__}", "$(id)", "`id`", "a\nb", "\x1b[31m", "*", "~", ""]
    job = up_job(place, {"argv": ["/usr/bin/printf", "[%s]", *odd]})
    assert job == "".join(f"[{word}]" for word in odd)
    assert place.run("-n true || echo it was a command").endswith("it was a command\n")
    name = "--version"
    assert place.run('printf %s "$X"', env={"X": name}, name=name) == name


def up_job(place: Place, body: dict[str, Any]) -> str:
    job = place.up.http.post("/jobs", json=body).json()["id"]
    assert place.up.http.get(f"/jobs/{job}?wait=30").json()["status"] == "done"
    return place.up.http.get(f"/jobs/{job}/output").text


@pytest.mark.parametrize("by", ["WORKRON_TOKEN", "WORKRON_API_KEY_FILE", "workron.toml"])
def test_a_worker_gets_its_key_without_a_command_line_and_keeps_it_from_its_jobs(
    place: Place, tmp_path: Path, by: str
) -> None:
    """A worker with a key for work alone, on one queue."""
    made = place.up.http.post("/keys", json={"name": f"w-{by}", "scopes": ["work"], "queues": ["far"]}).json()["key"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("WORKRON_")}
    if by == "workron.toml":
        (tmp_path / by).write_text(f'token = "{made}"\n')
    elif by == "WORKRON_TOKEN":
        env[by] = made
    else:
        (tmp_path / "key").write_text(made + "\n")
        env[by] = str(tmp_path / "key")
    command = [
        sys.executable,
        "-m",
        "workron",
        "worker",
        "--api",
        str(place.up.http.base_url).rstrip("/"),
        "--queues",
        "far",
    ]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*command, "--log-level", "debug"], env=env, cwd=tmp_path, stderr=log)
    try:
        output = place.run("env; id >/dev/null", queue="far")
        assert made not in output
        assert made.encode() not in command_line(process.pid)
    finally:
        process.terminate()
        assert process.wait(40) == 0, (tmp_path / "log").read_text()
    text = (tmp_path / "log").read_text()
    assert made not in text
    assert "Traceback" not in text
    assert "HTTP/1.1 403" not in text


@pytest.mark.parametrize(("flag", "variable"), [("--token", "WORKRON_TOKEN"), ("--api-key", "WORKRON_API_KEY")])
def test_a_secret_on_the_command_line_is_reported(tmp_path: Path, flag: str, variable: str) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("WORKRON_")}
    command = [sys.executable, "-m", "workron", "worker", "--api", "http://127.0.0.1:1", flag, "x" * 20]
    with subprocess.Popen(command, env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        said = process.stderr.readline()
        process.terminate()
        rest = process.stderr.read()
    assert said == f"workron: {flag} is visible to every user of this machine: set {variable} instead\n"
    assert "x" * 20 not in rest
