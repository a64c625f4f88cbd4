"""The process `workron api`: where it listens, what keeps it from starting, how it ends."""

import asyncio
import signal
import socket
import sys
from pathlib import Path

import httpx2
import pytest

from api.server import bind
from tests.api.live import AUTHORIZATION, START, environment
from tests.conftest import WaitUntil
from tests.ports import free_port
from workron.errors import StartupError


def test_a_taken_port_is_reported_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartupError, match=rf"127\.0\.0\.1 port {port}: .*in use; .*--port") as caught:
            bind("127.0.0.1", port)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("host", ["203.0.113.1", "no-such-host.invalid", "a..b"])
def test_a_foreign_address_is_reported_in_one_line(host: str) -> None:
    with pytest.raises(StartupError, match="can't listen on"):
        bind(host, 0)


def test_two_servers_cannot_hold_the_same_port() -> None:
    with bind("127.0.0.1", 0) as listener, pytest.raises(StartupError):
        bind("127.0.0.1", listener.getsockname()[1])


def test_a_port_is_free_again_as_soon_as_its_server_has_ended() -> None:
    port = free_port()
    with bind("127.0.0.1", port) as listener, socket.create_connection(listener.getsockname()) as client:
        accepted, _ = listener.accept()
        accepted.close()
        assert client.recv(1) == b""
    bind("127.0.0.1", port).close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_the_process_with_exit_code_0(
    url: str, namespace: str, tmp_path: Path, wait_until: WaitUntil, number: signal.Signals
) -> None:
    port, env = environment(url, namespace, tmp_path)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", START, env=env, stderr=asyncio.subprocess.PIPE, cwd=tmp_path
    )
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=AUTHORIZATION) as client:

        async def ready() -> bool:
            try:
                return (await client.get("/readyz")).status_code == 200
            except httpx2.TransportError:
                return False

        await wait_until(ready, within_s=60)
        assert (await client.get("/jobs")).json() == {"data": [], "next_cursor": None}
    process.send_signal(number)
    _, log = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0
    events = [line for line in log.decode().splitlines() if line]
    assert [f'"event": "{word}"' in line for word, line in zip(["api ready", "api stopped"], events[-2:], strict=True)]
    assert "Traceback" not in log.decode()
