"""Errors in requests, from those of the validator: without the input, and without names of our classes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, TypedDict

from workron.models.job_fields import NAME_PATTERN, NO_NUL
from workron.specs.fields import ID_PATTERN
from workron.specs.job_fields import CODES_PATTERN, KEY_PATTERN
from workron.specs.messages import in_words
from workron.specs.workflow import TASKS_PATTERN

_MEMBER: Final = re.compile(
    r"(?:constrained|function|literal|list|nullable|lax|is)-?.*\[.*\]|constrained-\w+|DependsOn"
)
"""A member of a union, as the validator names it in a location."""
_PLAIN_MEMBER: Final = frozenset({"str", "int", "float", "bool"})
_ANY_NAMES: Final = frozenset({"env", "metadata"})
"""Fields whose members have names that the user chooses."""
_KINDS: Final = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "list_type": "a list",
    "bool_type": "true or false",
}
_PATTERNS: Final = {
    f"String should match pattern '{pattern}'": words
    for pattern, words in {
        NO_NUL: "must not contain NUL characters",
        NAME_PATTERN: "must not contain control characters",
        ID_PATTERN: "must be an id, which has 22 letters and digits",
        KEY_PATTERN: "must be 1 to 128 letters, digits, '_', '-' and '.'",
        CODES_PATTERN: "must be an exit code from 1 to 255, or a range like 64-78",
        TASKS_PATTERN: "must be indexes of tasks, like 0-9,20",
    }.items()
}


class Fault(TypedDict):
    """One error in a request: its location and message."""

    loc: list[str | int]
    msg: str


def faults_of(details: Iterable[Mapping[str, Any]]) -> list[Fault]:
    """Return the faults of a request. What fits no member of a union is one fault: that of the member of its kind."""
    found: list[Fault] = []
    for place, group in groupby(details, _place):
        found += _one_place(place, list(group))
    return found


def _place(detail: Mapping[str, Any]) -> tuple[Sequence[str | int], bool]:
    """Return the location of the error, or of the union in which it is, and whether it is one."""
    loc = detail["loc"]
    at = next((index for index in range(len(loc)) if _is_member(loc, index)), None)
    return (loc, False) if at is None else (loc[:at], True)


def _one_place(place: tuple[Sequence[str | int], bool], details: Sequence[Mapping[str, Any]]) -> Iterable[Fault]:
    loc, is_union = place
    if not is_union:
        return [_fault(detail) for detail in details]
    of_its_kind = [one for one in details if one["type"] not in _KINDS or len(one["loc"]) > len(loc) + 1]
    if of_its_kind:
        return [_fault(detail) for detail in of_its_kind]
    kinds = dict.fromkeys(_KINDS[detail["type"]] for detail in details)
    return [{"loc": list(loc), "msg": f"must be {' or '.join(kinds)}"}]


def _is_member(loc: Sequence[str | int], index: int) -> bool:
    part, before = loc[index], loc[index - 1] if index else None
    if not isinstance(part, str) or before is None or before in _ANY_NAMES:
        return False
    return part in _PLAIN_MEMBER or _MEMBER.fullmatch(part) is not None


def _fault(detail: Mapping[str, Any]) -> Fault:
    loc, message = detail["loc"], detail["msg"]
    place = [part for index, part in enumerate(loc) if not _is_member(loc, index)]
    return {"loc": place, "msg": _PATTERNS.get(message) or in_words(message)}
