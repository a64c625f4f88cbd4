"""Workers over HTTP reduced to their requests, over raw sockets: `python -m bench.worker_load MODE PORT N [KEY]`.

    drain   32 workers claim and finish until N jobs are done
    nothing 32 clients send N empty POSTs to a route that does nothing
    parked  N workers wait; again and again a job is submitted, and answered to one of them

Prints one JSON document.
"""

import asyncio
import json
import re
import resource
import sys
import time
from typing import Any, Final

CONNECTIONS: Final = 32
WAKES: Final = 300
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Connection:
    """One keep-alive connection with one request at a time."""

    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self._head = f" HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {key}\r\n".encode()

    async def open(self) -> "Connection":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    def send(self, request: str, body: bytes = b"") -> None:
        kind = b"content-type: application/json\r\n" if body else b""
        head = request.encode() + self._head + kind + b"content-length: %d\r\n\r\n" % len(body)
        self._writer.write(head + body)

    async def answer(self) -> tuple[int, bytes]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        return int(head[9:12]), await self._reader.readexactly(int(length[1])) if length else b""

    async def ask(self, request: str, body: bytes = b"") -> tuple[int, bytes]:
        self.send(request, body)
        return await self.answer()

    def close(self) -> None:
        self._writer.close()


async def drain(port: int, jobs: int, key: str) -> dict[str, Any]:
    done = 0

    async def work(number: int) -> None:
        nonlocal done
        connection = await Connection(port, key).open()
        while done < jobs:
            status, body = await connection.ask(f"GET /jobs/next?worker_id=w{number}")
            if status != 200:
                break
            claim = json.loads(body)
            report = b'{"fence":%d}' % claim["fence"]
            status, body = await connection.ask(f"POST /jobs/{claim['id']}/done", report)
            assert status == 200, body  # noqa: S101 - not worth measuring then
            done += 1
        connection.close()

    started = time.perf_counter()
    await asyncio.gather(*map(work, range(CONNECTIONS)))
    return {"seconds": time.perf_counter() - started, "jobs": done}


async def nothing(port: int, requests: int, key: str) -> dict[str, Any]:
    left = requests

    async def work(_: int) -> None:
        nonlocal left
        connection = await Connection(port, key).open()
        while left > 0:
            left -= 1
            await connection.ask("POST /nothing")
        connection.close()

    started = time.perf_counter()
    await asyncio.gather(*map(work, range(CONNECTIONS)))
    return {"seconds": time.perf_counter() - started, "jobs": requests}


async def parked(port: int, count: int, key: str) -> dict[str, Any]:
    """Time from before the submission is sent until a waiting worker has the whole claim."""
    submitter = await Connection(port, key).open()
    waiting = [await Connection(port, key).open() for _ in range(count)]
    woken: asyncio.Queue[tuple[float, int]] = asyncio.Queue()

    async def wait(number: int) -> None:
        status, body = await waiting[number].ask(f"GET /jobs/next?worker_id=w{number}&wait=60")
        assert status == 200, (status, body)  # noqa: S101 - not worth measuring then
        woken.put_nowait((time.perf_counter(), number))

    tasks = {number: asyncio.create_task(wait(number)) for number in range(count)}
    print(json.dumps({"waiting": count}), flush=True)  # the parent measures the memory before it goes on
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    waits_ms = []
    for _ in range(WAKES):
        await asyncio.sleep(0.01)
        before = time.perf_counter()
        submitter.send("POST /jobs", b'{"command":"true"}')
        at, number = await woken.get()
        await submitter.answer()
        waits_ms.append((at - before) * 1000)
        tasks[number] = asyncio.create_task(wait(number))
    for task in tasks.values():
        task.cancel()
    await asyncio.wait(tasks.values())
    for connection in (*waiting, submitter):
        connection.close()
    return {"waits_ms": waits_ms}


if __name__ == "__main__":
    mode, port, count, *key = sys.argv[1:]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    run = {"drain": drain, "nothing": nothing, "parked": parked}[mode]
    print(json.dumps(asyncio.run(run(int(port), int(count), "".join(key)))), flush=True)
