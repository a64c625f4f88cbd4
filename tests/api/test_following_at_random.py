"""Followed output under random writes, attempts and breaks: every byte that is kept comes once and in order."""

import asyncio
import random
from collections import defaultdict
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from api.context import Context
from api.routes.output_stream import Follower
from tests.builders import SUCCESS, claim, new_job, submit
from tests.servers import Bench
from workers.output import OutputBuffer
from workron.models import OUTPUT_HEAD, OUTPUT_TAIL, Claim, OutputPatch, Piece, Position, Result, output_stream

SIZES: Final = [1, 7, 1000, OUTPUT_HEAD - 1, OUTPUT_HEAD, 200_000, OUTPUT_HEAD + OUTPUT_TAIL, 500_000]
SAID: Final = random.Random(7).randbytes(700_000)  # noqa: S311 - the same in each run
WRITE = st.tuples(st.just("write"), st.sampled_from(SIZES))
STEPS = st.lists(
    st.one_of(
        WRITE,
        st.tuples(st.sampled_from(["send", "lose", "next"]), st.just(0)),
        st.tuples(st.just("follow"), st.one_of(st.integers(0, 400), st.integers(0, 800_000))),
    ),
    max_size=25,
)


def said(fence: int, start: int, end: int) -> bytes:
    """What the attempt says from one byte to another: no two attempts the same, and no part of it twice."""
    begin = (fence * 7919 + start) % len(SAID)
    return (SAID * (2 + (end - start) // len(SAID)))[begin : begin + end - start]


class Life:
    """A job that says things, and a client that follows it over streams that break off."""

    def __init__(self, bench: Bench) -> None:
        self.store = bench.store()
        self.attempt: Claim
        self.buffer = OutputBuffer()
        self.stored: dict[int, int] = defaultdict(int)
        """Fence → bytes that its attempt has written by what the store was told last."""
        self.position: str | None = "0:0"
        self.came: list[Piece] = []
        self.ended = False

    async def begin(self) -> None:
        await submit(self.store, new_job())
        [self.attempt] = await claim(self.store)

    async def take(self, step: str, size: int) -> None:
        match step:
            case "write":
                self.buffer.write(said(self.attempt.fence, self.buffer.total, self.buffer.total + size))
            case "send":
                await self.send(self.buffer.take())
            case "lose":
                if (patch := self.buffer.take()) is not None:
                    self.buffer.put_back(patch)
            case "next":
                await self.send(self.buffer.take())
                await self.store.attempts.release([(self.attempt.id, self.attempt.fence)])
                [self.attempt] = await claim(self.store)
                self.buffer = OutputBuffer()
            case "follow":
                await self.follow(size)

    async def send(self, patch: OutputPatch | None) -> None:
        if patch is not None:
            await self.store.attempts.write_output([(self.attempt.id, self.attempt.fence, patch)])
            self.stored[self.attempt.fence] = patch.total

    async def end(self) -> None:
        """The job ends, with the last piece of output in the same call."""
        patch = self.buffer.take()
        await self.store.attempts.finish([Result(self.attempt.id, self.attempt.fence, SUCCESS, patch)], worker="w1")
        self.stored[self.attempt.fence] = self.buffer.total

    async def follow(self, size: int | None) -> None:
        """Open a stream where the last one broke off; this one breaks off after so many bytes."""
        context = cast(Context, SimpleNamespace(store=self.store, outages=None))
        position = Position(*map(int, self.position.split(":"))) if self.position else None
        follower = Follower(context, self.attempt.id, position, 0)
        pieces, sent = [], b""
        async for piece in follower.pieces():
            if piece is None:
                break
            pieces.append(piece)
            sent += output_stream.piece_event(piece)
        if follower.ended:
            sent += output_stream.end_event(follower.position)
        for event in output_stream.read_events([sent[:size]]):
            if event.ended:
                self.ended = True
                continue
            piece = pieces.pop(0)
            assert (event.position, event.data) == (f"{piece.fence}:{piece.end}", output_stream.printed(piece))
            self.position = event.position
            self.judge(piece)
            self.came.append(piece)

    def judge(self, piece: Piece) -> None:
        if piece.data is not None:
            assert piece.data == said(piece.fence, piece.start, piece.end)
            return
        # Nothing that is kept is called cut.
        total = self.stored[piece.fence]
        assert OUTPUT_HEAD <= piece.start < piece.end == total - OUTPUT_TAIL

    def judge_all(self) -> None:
        """The pieces of each attempt lie end to end, those of the last two attempts that said something to the end."""
        assert self.ended
        reached: dict[int, int] = {}
        for piece in self.came:
            assert piece.fence >= max(reached, default=0)
            assert piece.start == reached.get(piece.fence, 0)
            reached[piece.fence] = piece.end
        kept = sorted(fence for fence, total in self.stored.items() if total)[-2:]
        assert {fence: reached.get(fence) for fence in kept} == {fence: self.stored[fence] for fence in kept}


async def live(steps: list[tuple[str, int]]) -> None:
    bench = Bench("fake", None, "random")
    life = Life(bench)
    try:
        await life.begin()
        for step, size in steps:
            await life.take(step, size)
        await life.end()
        await life.follow(None)
        life.judge_all()
    finally:
        await bench.aclose()


@hypothesis_settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_every_byte_that_is_kept_comes_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    asyncio.run(live(steps))


@pytest.mark.parametrize(
    "steps",
    [
        [("write", 500_000), ("send", 0), ("follow", 200_000), ("write", 7), ("send", 0), ("follow", 10**6)],
        [("write", 1000), ("next", 0), ("write", 7), ("next", 0), ("write", 1), ("follow", 100), ("next", 0)],
        [("write", 7), ("send", 0), ("follow", 10**6), ("write", 7), ("lose", 0), ("follow", 10**6), ("next", 0)],
    ],
)
def test_courses_of_old(steps: list[tuple[str, int]]) -> None:
    asyncio.run(live(steps))


def test_the_judge_sees_a_byte_that_comes_twice_or_not_at_all() -> None:
    def judged(*pieces: Piece) -> Any:
        life = Life(Bench("fake", None, "judge"))
        life.ended, life.came, life.stored[7] = True, list(pieces), 3
        return life.judge_all

    first, rest = Piece(7, 0, 2, b"ab"), Piece(7, 2, 3, b"c")
    judged(first, rest)()
    for wrong in ([first], [rest], [first, rest, rest], [first, first, rest], [rest, first]):
        with pytest.raises(AssertionError):
            judged(*wrong)()
