"""YAML, as far as all versions of it agree, and without the growth that its aliases allow."""

import re
from typing import Any, Final

import yaml

_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = f"{_TAG}merge"
_WORDS: Final = re.compile(r"yes|no|on|off", re.IGNORECASE)
_PLAIN_INT: Final = re.compile(r"[-+]?(0|[1-9][0-9]*|0x[0-9a-fA-F]+)")
_PLAIN_FLOAT: Final = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+][0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_NEWER_NUMBER: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|0o[0-7]+")
"""A number in YAML 1.2; the loader follows 1.1, and takes some of them for text."""
_NODE: Final = 8
_MOST_GROWTH: Final = 32 * 1024 * 1024
"""Maximum of characters that aliases may add, the default limit of a request; each value counts for 8 in addition."""

_loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse(text: str) -> Any:
    """Return the document; raise ValueError with the place and the error in one line."""
    loader = _loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        checks = _Checks()
        if checks.size_of(node) > checks.written + _MOST_GROWTH:
            raise ValueError(f"aliases make it larger than {_MOST_GROWTH:,} characters")
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"{place}{error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    finally:
        loader.dispose()


class _Checks:
    """Refuses duplicate keys and ambiguous values, and sums the sizes of a document with and without its aliases."""

    def __init__(self) -> None:
        self.written = 0
        """The size of all values as they are written, each counted once."""
        self._sizes: dict[int, int] = {}

    def size_of(self, node: Any) -> int:
        """Return the size of a value with all aliases replaced; RecursionError if it contains itself."""
        if (known := self._sizes.get(id(node))) is not None:
            return known
        if isinstance(node, yaml.ScalarNode):
            _check_scalar(node)
            inner = 0
            own = _NODE + len(node.value)
        else:
            if isinstance(node, yaml.MappingNode):
                _check_keys(node)
            inner = sum(map(self.size_of, _members(node)))
            own = _NODE
        self.written += own
        self._sizes[id(node)] = own + inner
        return own + inner


def _members(node: Any) -> list[Any]:
    if isinstance(node, yaml.MappingNode):
        return [one for pair in node.value for one in pair]
    members: list[Any] = node.value
    return members


def _check_keys(node: Any) -> None:
    """Refuse a key that is written twice; a merged key may be overridden."""
    seen: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
            if key.value in seen:
                raise ValueError(f"line {node.start_mark.line + 1}: duplicate key {key.value!r}")
            seen.add(key.value)


def _check_scalar(node: Any) -> None:
    """Refuse a value without quotes that YAML 1.1 and 1.2 read differently: `no`, `010`, `1:30`, `1_000`, `1e3`."""
    text, kind = node.value, node.tag.removeprefix(_TAG)
    if node.style:  # it is in quotes, or a block
        return
    if kind == "bool" and _WORDS.fullmatch(text):
        advice = f"{text} is true or false in some versions of YAML: put it in quotes, or write true or false"
    elif (
        (kind == "int" and not _PLAIN_INT.fullmatch(text))
        or (kind == "float" and not _PLAIN_FLOAT.fullmatch(text))
        or (kind == "str" and _NEWER_NUMBER.fullmatch(text))
    ):
        advice = f"{text} is not the same number in all versions of YAML: put it in quotes, or write a decimal number"
    elif kind == "value":
        advice = f"{text} is not text in all versions of YAML: put it in quotes"
    else:
        return
    raise ValueError(f"line {node.start_mark.line + 1}: {advice}")
