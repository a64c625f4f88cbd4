"""Large bodies and responses: processed in a thread, in short calls into C, so that the event loop keeps running."""

import asyncio
import gc
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import islice
from typing import Annotated, Any, Final, TypeVar, cast
from uuid import uuid4

import orjson
from pydantic import BaseModel, FailFast, TypeAdapter, ValidationError
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.http.slices import Node, NoJsonError, canonical, take_apart
from api.problems import InvalidFields
from workron.errors import InvalidRequest
from workron.specs.job import MOST_JOBS, MOST_VALUES, NewJob, Value
from workron.strict_json import repeated_key

Model = TypeVar("Model", bound=BaseModel)
T = TypeVar("T")
LARGE: Final = 64 * 1024
"""Minimum size of a large body, bytes: smaller ones take less time than starting a thread."""
MANY: Final = 500
"""Minimum number of jobs in a large response."""
_MOST_MEMBERS: Final = 10_000
"""Maximum of members of an array or object in a body; lists of jobs and of values have their own limits."""
_MOST_OF_ALL: Final = 50_000
"""Members at any depth, of a body or of an item of its list: they are validated in one call. A result may be
one array."""
LISTS: Final = frozenset({"results", "data", "held"})
"""What workers send of many attempts; a body has one of these."""
_MOST_FAULTS: Final = 10_000
"""Maximum of errors: reading one from pydantic takes as long as reading all, 5 s for two million."""
_IN_PLACE: Final = uuid4().hex
"""Placeholder in a body for a removed large part."""
_threads: Final = ThreadPoolExecutor(2, "large")


class PiecesResponse(Response):
    """A JSON response in pieces, each sent when the client has read most of the previous ones."""

    media_type = "application/json"

    def __init__(self, pieces: list[bytes], status: int, headers: Mapping[str, str] | None) -> None:
        super().__init__(None, status, headers)
        self.headers["content-length"] = str(sum(map(len, pieces)))
        self._pieces = pieces

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in self._pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


_LONGEST_PAUSE_S: Final = 5.0
_paused: Final[list[float]] = []
"""Start times of the active pauses of garbage collection."""


@contextmanager
def without_collections(*, large: bool) -> Iterator[None]:
    """Pause garbage collection, which would repeatedly traverse very many new objects, half a second each time.

    A long pause is not extended by further large bodies.
    """
    now_s = time.monotonic()
    if not large or (_paused and now_s - _paused[0] > _LONGEST_PAUSE_S):
        yield
        return
    _paused.append(now_s)
    gc.disable()
    try:
        yield
    finally:
        _paused.pop()
        if not _paused:
            gc.enable()


async def in_thread(work: Callable[..., T], *args: Any, large: bool = True) -> T:
    """Return the result of `work`, run in a thread if it is `large`. It should release the GIL often."""
    if not large:
        return work(*args)
    return await asyncio.get_running_loop().run_in_executor(_threads, work, *args)


def parse(model: type[Model], raw: bytes) -> Model:
    """Return the body as a model. One of its lists may have very many items, and each job's array values."""
    try:
        root = take_apart(raw)
        if root.is_array:
            _validated(model, b"[]", ())  # it says what it wants instead
        if "jobs" in model.model_fields and (jobs := root.member("jobs")) and jobs.is_array:
            return cast(Model, _with_jobs(model, root, jobs))
        for name in LISTS & model.model_fields.keys():
            if (items := root.member(name)) and items.is_array:
                return cast(Model, _with_items(model, root, items, name))
        return cast(Model, _parse_one(model, root, ()))
    except NoJsonError as error:
        raise InvalidFields([{"loc": (), "msg": f"Invalid JSON: {error}"}]) from None


def _with_items(model: type[BaseModel], root: Node, node: Node, name: str) -> Any:
    """Validate the items of a list slice by slice."""
    _limit(root, (), node)
    head = _validated(model, _replaced(root, node, b"[]"), ())
    field = model.model_fields[name]
    most = next(limit.max_length for limit in field.metadata if hasattr(limit, "max_length"))
    return head.model_copy(update={name: _items_of(node, _item_of(model, name), name, most)})


def _items_of(node: Node, item: type[BaseModel], name: str, most: int) -> list[Any]:
    found: list[Any] = []
    for part in node.parts:
        if isinstance(part, Node):
            found.append(_parse_one(item, part, (name, len(found))))
        else:
            found += _validated(_list_of(item), node.wrapped(part), (name,), len(found))
        if len(found) > most:
            raise _too_long((name,), most)
    return found


def _with_jobs(model: type[BaseModel], root: Node, jobs: Node) -> Any:
    """Validate the jobs slice by slice, then all of them together."""
    _limit(root, (), jobs)
    head = _validated(model, _replaced(root, jobs, orjson.dumps([{"command": _IN_PLACE}])), ())
    many = head.model_copy(update={"jobs": _items_of(jobs, _item_of(model, "jobs"), "jobs", MOST_JOBS)})
    try:
        many.check()
    except ValueError as error:
        raise InvalidFields([{"loc": (), "msg": str(error)}]) from None
    return many


def _parse_one(model: type[BaseModel], root: Node, place: tuple[str | int, ...]) -> Any:
    """Validate one object; a job's array can have very many values."""
    array = root.member("array") if issubclass(model, NewJob) else None
    values = array if array is None or array.is_array else array.member("values")
    if values is None or not values.is_array:
        _limit(root, place, most=_MOST_OF_ALL if "result" in model.model_fields else _MOST_MEMBERS)
        return _validated(model, root.raw[root.start : root.end], place)
    _limit(root, place, values)
    new = _validated(model, _replaced(root, values, orjson.dumps([_IN_PLACE])), place)
    array = new.array.model_copy(update={"values": _values_of(values, (*place, "array", "values"))})
    return new.model_copy(update={"array": array})


def _values_of(node: Node, place: tuple[str | int, ...]) -> list[str]:
    found: list[str] = []
    for part in node.parts:
        if isinstance(part, Node):  # no text
            _limit(part, place)
            text = b"[%b]" % part.raw[part.start : part.end]
        else:
            text = node.wrapped(part)
        found += _validated(_values(), text, place, len(found))
        if len(found) > MOST_VALUES:
            raise _too_long(place, MOST_VALUES)
    return found


def _limit(node: Node, place: tuple[str | int, ...], but: Node | None = None, most: int = _MOST_MEMBERS) -> int:
    """Raise an error for too many members, before they are validated; return their number, at any depth."""
    if node is but:
        return 0
    members = below = 0
    for part in node.parts:
        if isinstance(part, Node):
            members += 1
            below += _limit(part, (*place, part.name or members - 1), but, most)
        else:
            loaded = node.load(part)
            members += len(loaded)
            below += _members_in(loaded) - len(loaded)
        if members > most:
            raise _too_long(place, most)
        if members + below > _MOST_OF_ALL:
            raise _too_long(place, _MOST_OF_ALL)
    return members + below


def _members_in(value: Any) -> int:
    if not isinstance(value, list | dict):
        return 0
    return len(value) + sum(map(_members_in, value.values() if isinstance(value, dict) else value))


def _replaced(root: Node, node: Node, text: bytes) -> bytes:
    return root.raw[root.start : node.start] + text + root.raw[node.end : root.end]


def _validated(what: Any, text: bytes, place: tuple[str | int, ...], first: int | None = None) -> Any:
    """Validate the JSON text of a location with a model or an adapter; `first`: index of its first item in a list."""
    try:
        valid = what.validate_json(text) if isinstance(what, TypeAdapter) else what.model_validate_json(text)
    except ValidationError as error:
        details = details_of(error)
        for detail in details:
            at = detail["loc"]
            if first is not None and at and isinstance(at[0], int):
                at = (first + at[0], *at[1:])
            detail["loc"] = (*place, *at)
        raise InvalidFields(details) from None
    refuse_repeats(text, place)
    return valid


def refuse_repeats(text: bytes, place: tuple[str | int, ...] = ()) -> None:
    """Raise an error for a duplicate key in valid JSON: the model has only the last value."""
    if (key := repeated_key(text)) is not None:
        raise InvalidFields([{"loc": place, "msg": f"duplicate key {key!r}"}])


def details_of(error: ValidationError) -> list[Any]:
    """Return the errors of a body; raise InvalidRequest if there are too many."""
    if (number := error.error_count()) > _MOST_FAULTS:
        raise InvalidRequest(f"the body has {number:,} errors, too many to list") from None
    return list(error.errors(include_url=False, include_input=False, include_context=False))


def _too_long(place: tuple[str | int, ...], most: int) -> InvalidFields:
    return InvalidFields([{"loc": place, "msg": f"there should be at most {most:,} items"}])


def _item_of(model: type[BaseModel], name: str) -> type[BaseModel]:
    annotation = model.model_fields[name].annotation
    item: type[BaseModel] = annotation.__args__[0]  # type: ignore[union-attr]  # it is a list of models
    return item


@cache
def _list_of(item: Any) -> TypeAdapter[Any]:
    return TypeAdapter(Annotated[list[item], FailFast()])


@cache
def _values() -> TypeAdapter[list[str]]:
    return TypeAdapter(list[Value])


def fingerprint(head: bytes, raw: bytes) -> str:
    """Return the SHA-256 of `head` and the body; whitespace and member order make no difference."""
    digest = hashlib.sha256(head)
    if len(raw) <= LARGE:
        digest.update(orjson.dumps(orjson.loads(raw), option=orjson.OPT_SORT_KEYS))
        return digest.hexdigest()
    for piece in canonical(take_apart(raw)):
        digest.update(piece)
    return digest.hexdigest()


def written_list(documents: Iterable[Mapping[str, Any]]) -> list[bytes]:
    """Return the JSON of a list of very many documents in pieces; there are no further pages."""
    pieces, left = [b'{"data":['], iter(documents)
    while some := list(islice(left, MANY)):
        pieces += (orjson.dumps(some)[1:-1], b",")
    pieces[-1] = pieces[-1].removesuffix(b",") + b'],"next_cursor":null}'
    return pieces


def release(items: list[Any]) -> None:
    """Free very many objects in pieces: freeing them at once would block the event loop."""
    while items:
        del items[-MANY:]
