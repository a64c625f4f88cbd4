"""A lane: calls under way together on one connection, each answered by its own reply."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from workron.errors import StoreBroken, StoreUnavailable
from workron.redis.connection import Connection


@pytest.fixture
async def connection(url: str) -> AsyncIterator[Connection]:
    made = Connection.open(url)
    yield made
    await made.aclose()


async def test_calls_under_way_share_one_connection_and_get_their_own_replies(connection: Connection) -> None:
    first = await connection.call("CLIENT", "ID")
    replies = await asyncio.gather(*(connection.call("ECHO", str(number)) for number in range(100)))
    assert replies == [str(number).encode() for number in range(100)]
    assert await connection.call("CLIENT", "ID") == first


async def test_a_call_given_up_does_not_leave_its_reply_to_the_next(connection: Connection, namespace: str) -> None:
    async def wait() -> None:
        await connection.call("BLPOP", f"{namespace}:list", 0.3, repeat=False)

    await connection.call("PING")
    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    assert await connection.call("ECHO", "mine") == b"mine"
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_an_error_reply_concerns_its_own_call_only(connection: Connection) -> None:
    answers = await asyncio.gather(
        connection.call("NO-SUCH-COMMAND"), connection.call("ECHO", "fine"), return_exceptions=True
    )
    assert isinstance(answers[0], StoreBroken)
    assert answers[1] == b"fine"


async def test_an_error_in_a_pipeline_stands_in_its_place(connection: Connection) -> None:
    one, two, three = await connection.each([("ECHO", "1"), ("NO-SUCH-COMMAND",), ("ECHO", "3")])
    assert (one, three) == (b"1", b"3")
    assert isinstance(two, Exception)


async def test_a_page_of_reads_was_a_write_per_command(connection: Connection) -> None:
    async def reads() -> int:
        stats = (await connection.call("INFO", "stats")).decode()
        return int(stats.partition("total_reads_processed:")[2].split()[0])

    before = await reads()
    assert await connection.each([("ECHO", number) for number in range(500)]) == [b"%d" % n for n in range(500)]
    assert await reads() - before <= 10


async def test_bytes_and_numbers_arrive_as_they_are(connection: Connection) -> None:
    assert await connection.call("ECHO", b"\x00\xff\r\n") == b"\x00\xff\r\n"
    assert await connection.call("ECHO", 1 << 62) == b"%d" % (1 << 62)


@asynccontextmanager
async def pretend_server(folder: Path, **answers: Callable[[], bytes]) -> AsyncIterator[str]:
    """Give the URL of something that shakes hands like Redis, and then answers each command as it is told to."""
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            if b"HELLO" in line:
                writer.write(b"%1\r\n+proto\r\n:3\r\n")
            elif b"SETINFO" in line:
                writer.write(b"+OK\r\n")
            elif answer := answers.get(line.decode().strip()):
                writer.write(answer())
        writer.close()
        gone.set()

    async with await asyncio.start_unix_server(serve, folder / "redis.sock"):
        yield f"unix://{folder}/redis.sock"
        await gone.wait()


async def test_a_server_that_falls_silent_costs_one_budget_and_not_the_calls_after_it(tmp_path: Path) -> None:
    """The connection may be half open: calls that came later stood behind the one that was never answered."""
    answers = [b"", b"+PONG\r\n"]
    async with pretend_server(tmp_path, PING=lambda: answers.pop(0)) as url:
        connection = Connection.open(url, budget_s=0.3)
        with pytest.raises(StoreUnavailable, match=r"within 0.3 s"):
            await connection.call("PING")
        assert await connection.call("PING") == b"PONG"
        await connection.aclose()


async def test_what_is_not_the_protocol_breaks_the_connection_and_not_the_process(tmp_path: Path) -> None:
    async with pretend_server(tmp_path, PING=lambda: b"HTTP/1.1 400 Bad Request\r\n\r\n") as url:
        connection = Connection.open(url)
        with pytest.raises(StoreUnavailable):
            await connection.call("PING", repeat=False)
        await connection.aclose()


@pytest.mark.parametrize("word", ["LOADING", "READONLY", "TRYAGAIN"])
async def test_a_wake_up_was_lost_with_a_claim_that_the_server_put_off(tmp_path: Path, word: str) -> None:
    """What had waited for the worker's name waited for it once more: the name was out of the list by then."""
    inbox = [b"*2\r\n$5\r\ninbox\r\n$2\r\nw1\r\n"]
    claims = [f"-{word} for a moment\r\n".encode(), b"+CLAIMED\r\n"]
    server = pretend_server(tmp_path, BLPOP=lambda: inbox.pop(0) if inbox else b"", ECHO=lambda: claims.pop(0))
    async with server as url:
        connection = Connection.open(url)
        answer = await connection.behind(("BLPOP", "inbox", 1.0), ("ECHO", "claim"))
        await connection.aclose()
    assert answer == b"CLAIMED"
