"""Job ids: UUIDv7 in 22 characters of base 62, so that ids sort by creation time.

The digits are in ASCII order, hence the text sorts like the number. A submission of many jobs takes
consecutive numbers (`new_ids`): the first id and a count denote all of them.
"""

import re
from typing import Final

import uuid_utils

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_VALUES: Final = {digit: value for value, digit in enumerate(_DIGITS)}
_LENGTH: Final = 22
_PAIR: Final = len(_DIGITS) ** 2
_PAIRS: Final = [high + low for high in _DIGITS for low in _DIGITS]
_PATTERN: Final = re.compile(r"[0-9A-Za-z]{22}")


def encode(number: int) -> str:
    """Return the 22-character text of a 128-bit number."""
    pairs = []
    for _ in range(_LENGTH // 2):
        number, rest = divmod(number, _PAIR)
        pairs.append(_PAIRS[rest])
    return "".join(reversed(pairs))


def decode(text: str) -> int:
    """Return the number of an id made by `encode`."""
    number = 0
    for digit in text:
        number = number * 62 + _VALUES[digit]
    return number


def is_id(text: str) -> bool:
    """Return whether this text has the form of an id (not whether such a job exists)."""
    return _PATTERN.fullmatch(text) is not None


def new_id() -> str:
    """Return a new id that sorts after ids made in earlier milliseconds."""
    return encode(uuid_utils.uuid7().int)


def new_ids(count: int) -> list[str]:
    """Return `count` consecutive new ids in ascending order."""
    return ids_from(new_id(), count)


def ids_from(first: str, count: int) -> list[str]:
    """Return the `count` consecutive ids that start with `first`."""
    start = decode(first)
    texts: list[str] = []
    while len(texts) < count:
        high, low = divmod(start + len(texts), _PAIR)
        prefix = encode(high)[2:]  # shared by all up to the next carry
        texts += [prefix + pair for pair in _PAIRS[low : low + count - len(texts)]]
    return texts


def ids_behind(first: str, offset: int, count: int) -> list[str]:
    """Return `count` consecutive ids, beginning `offset` after `first`."""
    return ids_from(encode(decode(first) + offset), count)
