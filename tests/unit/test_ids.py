"""Ids: the order of their texts is the order of their numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workron import ids

NUMBERS = st.integers(0, 2**128 - 1)


@given(NUMBERS, NUMBERS)
def test_texts_sort_like_numbers_and_decode_to_them(one: int, other: int) -> None:
    assert (ids.encode(one) < ids.encode(other)) == (one < other)
    assert ids.decode(ids.encode(one)) == one
    assert ids.is_id(ids.encode(one))


@given(NUMBERS, st.integers(1, 10_000))
def test_consecutive_ids_are_the_texts_of_consecutive_numbers(first: int, count: int) -> None:
    texts = ids.ids_from(ids.encode(first), count)
    assert len(texts) == count
    for offset in {0, count // 2, count - 1}:
        assert texts[offset] == ids.encode(first + offset)


@pytest.mark.parametrize("text", ["", "0" * 21, "0" * 23, "0" * 21 + "-", "0" * 21 + "\n"])
def test_an_invalid_id_is_reported(text: str) -> None:
    assert not ids.is_id(text)
