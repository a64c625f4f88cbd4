"""The bounded buffer that holds a command's output."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from workers.output import OutputBuffer
from workron.models import OUTPUT_HEAD, OUTPUT_TAIL, OutputPatch
from workron.models.text import harmless, last_bytes


def apply(stored: bytes, patch: OutputPatch | None) -> bytes:
    """Do what the store does with a patch."""
    if patch is None:
        return stored
    assert patch.offset <= len(stored), "a patch leaves a hole"
    return stored[: patch.offset] + patch.data + stored[patch.offset + len(patch.data) :]


def kept(output: bytes, head: int, tail: int) -> bytes:
    return output if len(output) <= head + tail else output[:head] + output[-tail:]


@given(
    steps=st.lists(st.tuples(st.binary(max_size=20), st.sampled_from(["take", "lose", "wait"])), max_size=30),
    head=st.integers(0, 12),
    tail=st.integers(1, 12),
)
def test_patches_add_up_to_the_head_and_the_tail(steps: list[tuple[bytes, str]], head: int, tail: int) -> None:
    buffer, output, stored = OutputBuffer(head=head, tail=tail), b"", b""
    for data, then in steps:
        buffer.write(data)
        output += data
        untaken = buffer.untaken
        if then == "take":
            stored = apply(stored, buffer.take())
            assert stored == kept(output, head, tail)
        elif then == "lose" and (patch := buffer.take()) is not None:
            assert len(patch.data) == untaken
            buffer.put_back(patch)
    stored = apply(stored, buffer.take())
    assert stored == kept(output, head, tail)
    assert buffer.total == len(output)
    assert buffer.untaken == 0
    assert buffer.take() is None


def test_patches_append_while_nothing_is_cut() -> None:
    buffer = OutputBuffer()
    buffer.write(b"one ")
    assert buffer.take() == OutputPatch(0, b"one ", 4)
    buffer.write(b"two ")
    buffer.write(b"three")
    assert buffer.take() == OutputPatch(4, b"two three", 13)


def test_a_patch_rewrites_the_tail_once_something_is_cut() -> None:
    buffer = OutputBuffer()
    buffer.write(b"h" * (OUTPUT_HEAD + OUTPUT_TAIL))
    buffer.take()
    buffer.write(b"t")
    patch = buffer.take()
    assert patch == OutputPatch(OUTPUT_HEAD, b"h" * (OUTPUT_TAIL - 1) + b"t", OUTPUT_HEAD + OUTPUT_TAIL + 1)


def test_no_output_costs_no_memory_and_no_patch() -> None:
    tracemalloc.start()
    try:
        buffers = [OutputBuffer() for _ in range(100)]
        assert all(buffer.take() is None for buffer in buffers)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 100 * 1000


def test_memory_is_bounded_whatever_the_size_of_the_writes() -> None:
    limit = OUTPUT_HEAD + OUTPUT_TAIL + 512 * 1024
    for size, count in ((1, 400_000), (65_536, 100)):
        buffer, data = OutputBuffer(), b"x" * size
        tracemalloc.start()
        try:
            for _ in range(count):
                buffer.write(data)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert buffer.total == size * count
        assert peak < limit


def test_the_end_of_the_output_is_reported_as_text() -> None:
    buffer = OutputBuffer()
    buffer.write("first\nlast: žluťoučký 🐎\n".encode())
    assert buffer.tail_text(1000) == "first\nlast: žluťoučký 🐎\n"
    assert buffer.tail_text(len("…🐎\n".encode())) == "…🐎\n"
    assert OutputBuffer().tail_text(10) == ""


def test_the_end_of_the_output_may_lie_in_the_head_and_the_tail() -> None:
    buffer = OutputBuffer(head=4, tail=4)
    buffer.write(b"abcdef")
    assert buffer.tail_text(100) == "abcdef"


@given(output=st.binary(max_size=60), limit=st.integers(0, 40))
def test_the_text_is_never_longer_than_its_limit(output: bytes, limit: int) -> None:
    buffer = OutputBuffer(head=8, tail=64)
    buffer.write(output)
    assert len(buffer.tail_text(limit).encode()) <= limit


def test_text_cannot_drive_a_terminal() -> None:
    text = harmless("\x1b[2J\x00\x07 one\r\ntwo\rthree\x7f \x9b31m \u202ereversed \ud800")
    assert text == "␛[2J␀␇ one\ntwo\nthree␡ \ufffd31m \ufffdreversed \ufffd"


def test_the_text_says_that_it_was_cut() -> None:
    assert last_bytes("abcdef", 6) == "abcdef"
    assert last_bytes("abcdefg", 6) == "…efg"
