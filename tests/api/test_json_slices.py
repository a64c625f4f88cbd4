"""JSON taken apart into slices is the same JSON, and what is none is refused."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.http import slices
from api.http.slices import Node, NoJsonError, canonical, take_apart

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(['"', "\\", '\\"', "},{", "],[", ',"', "é"])
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | TEXTS,
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(TEXTS, inner, max_size=8),
    max_leaves=60,
)


def whole(node: Node) -> Any:
    """Return what the slices of a node are together."""
    if node.is_array:
        items: list[Any] = []
        for part in node.parts:
            items += [whole(part)] if isinstance(part, Node) else node.load(part)
        return items
    members: dict[str, Any] = {}
    for part in node.parts:
        members |= {part.name or "": whole(part)} if isinstance(part, Node) else node.load(part)
    return members


@given(
    document=st.lists(DOCUMENTS, max_size=6) | st.dictionaries(TEXTS, DOCUMENTS, max_size=6),
    window=st.sampled_from([1, 7, 40, 10_000]),
    spaces=st.booleans(),
)
def test_slices_of_any_size_are_together_what_was_taken_apart(document: Any, window: int, spaces: bool) -> None:
    raw = orjson.dumps(document, option=orjson.OPT_INDENT_2 if spaces else None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "WINDOW", window)
        node = take_apart(b" \n" + raw + b" ")
    assert whole(node) == document
    assert b"".join(canonical(node)) == orjson.dumps(orjson.loads(raw), option=orjson.OPT_SORT_KEYS)


@given(
    document=st.lists(DOCUMENTS, min_size=1, max_size=6), at=st.integers(0, 10**6), byte=st.sampled_from(b'{}[],:"\\ 1')
)
def test_what_is_no_json_is_found_when_all_slices_are_read(document: Any, at: int, byte: int) -> None:
    raw = bytearray(orjson.dumps(document))
    raw[at % len(raw)] = byte
    try:
        expected = orjson.loads(raw)
    except orjson.JSONDecodeError:
        expected = None
    if expected is not None and not isinstance(expected, (list, dict)):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "WINDOW", 16)
        if expected is None:
            with pytest.raises(NoJsonError):
                whole(take_apart(bytes(raw)))
        else:
            assert whole(take_apart(bytes(raw))) == expected


@pytest.mark.parametrize(
    "raw",
    [b"", b" ", b"1", b'"x"', b"[", b"{", b"[1", b"[1,]", b"[,1]", b"[1 2]", b"[1}", b'{"a"}', b'{"a":}', b'{"a":1,}',
     b"{1:1}", b"[1]]", b"[1] 2", b'["', b'["\\', b'{"\\x":[', b"[" * 100_000, b'{"a":' * 100_000]
)  # fmt: skip
@pytest.mark.parametrize("window", [4, 32_768])
def test_broken_brackets_and_commas_are_refused(raw: bytes, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "WINDOW", window)
    with pytest.raises(NoJsonError):
        whole(take_apart(raw))


def test_a_slice_is_no_longer_than_its_window_unless_one_member_is() -> None:
    document = {
        "jobs": [{"command": "true", "env": {"a": "1"}}] * 5000,
        "text": "x" * 100_000,
        "values": ["v"] * 50_000,
    }
    node = take_apart(orjson.dumps(document))
    jobs, values = node.nodes()
    lengths = [end - start for part in (jobs, values) for start, end in part.parts]  # type: ignore[misc]
    assert max(lengths) <= slices.WINDOW
    assert len(lengths) < 2 * sum(lengths) / slices.WINDOW
