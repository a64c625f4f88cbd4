"""Which bytes are answered for an offset, with and without a dropped middle."""

import pytest

from api.routes.output_stream import from_offset
from workron.models import Output

WHOLE = Output(1, head=b"0123456789")
SPLIT = Output(1, head=b"01234", tail=b"56789")
CUT = Output(1, head=b"HEAD", cut=1_234_567, tail=b"TAIL")


@pytest.mark.parametrize("output", [WHOLE, SPLIT])
@pytest.mark.parametrize("offset", range(12))
def test_output_without_a_gap_is_a_plain_slice(output: Output, offset: int) -> None:
    assert from_offset(output, offset) == b"0123456789"[offset:]


def test_a_dropped_middle_is_one_line_saying_how_much() -> None:
    assert from_offset(CUT, 0) == "HEAD\n… 1,234,567 bytes cut …\nTAIL".encode()


def test_an_offset_inside_the_gap_counts_only_what_is_missing_from_there() -> None:
    assert from_offset(CUT, 4 + 1_234_560) == "\n… 7 bytes cut …\nTAIL".encode()


def test_an_offset_behind_the_gap_counts_in_the_whole_output() -> None:
    assert from_offset(CUT, 4 + 1_234_567 + 2) == b"IL"


def test_an_offset_behind_the_end_is_empty() -> None:
    assert from_offset(CUT, CUT.total + 5) == b""
