"""Where the primary is, for each kind of URL: a place opens lanes to the server that takes our writes now.

    redis://  rediss://  unix://               the server that the URL names
    redis+sentinel://HOST:PORT,…/SERVICE[/DB]  the primary that one of these sentinels names, if it says so itself
    redis+cluster://HOST:PORT,…                the node that serves our keys, which are all in one slot

`rediss+sentinel` and `rediss+cluster` speak TLS to all of them. A server that is tried and does not answer soon is
tried last the next time.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.exceptions import AskError, ClusterDownError, MovedError, NoPermissionError, ReadOnlyError, RedisError

from workron.redis.lane import Lane

Address = tuple[str, int]

_ASK_S: Final = 0.8
"""How long one of several servers may take to be connected to and to answer, before the next one is tried."""
_HOPS: Final = 3
_SENTINEL_PORT: Final = 26379
_PORT: Final = 6379
_SWITCHED: Final = "+switch-master"
"""The channel on which sentinels tell of a new primary."""
_SENTINEL_LOGIN: Final = ("sentinel_username", "sentinel_password")


class Place(Protocol):
    """Knows the way to the primary."""

    async def open(self, limit_s: float) -> Lane:
        """Return a lane to the server that takes writes; any of redis-py's errors."""
        ...

    def is_left(self, error: Exception) -> bool:
        """Tell whether an answer means that another server may take our writes by now: then a new lane is needed."""
        ...


def plain_url(url: str) -> str:
    """Return the URL as redis-py takes it: of the first of the servers named."""
    parts, kind = _split(url)
    if not kind:
        return url
    login, at, _ = parts.netloc.rpartition("@")
    _, db = _service(parts)
    query = urlencode([(name, value) for name, value in parse_qsl(parts.query) if name not in _SENTINEL_LOGIN])
    return parts._replace(
        scheme=parts.scheme.partition("+")[0],
        netloc=f"{login}{at}{parts.netloc.removeprefix(login + at).partition(',')[0]}",
        path=f"/{db}" if kind == "sentinel" else "",
        query=query,
    ).geturl()


def place_of(url: str, pool: ConnectionPool, key: str) -> Place:
    """Return the place that a URL names; `pool` makes the connections, `key` is one of ours."""
    parts, kind = _split(url)
    if not kind:
        return Named(pool)
    to = _Door(pool)
    if kind == "cluster":
        return Cluster(to, _addresses(parts, _PORT), key)
    service, _ = _service(parts)
    asked = dict(parse_qsl(parts.query))
    username, password = (asked.get(name) for name in _SENTINEL_LOGIN)
    return Sentinels(
        to, _Door(pool, username=username, password=password, db=0), _addresses(parts, _SENTINEL_PORT), service
    )


def _split(url: str) -> tuple[SplitResult, str]:
    parts = urlsplit(url)
    kind = parts.scheme.partition("+")[2]
    return parts, kind


def _service(parts: SplitResult) -> tuple[str, str]:
    """Return the name by which sentinels know the primary, and the database."""
    if not parts.scheme.endswith("+sentinel"):
        return "", ""
    service, _, db = parts.path.strip("/").partition("/")
    return service, db or "0"


def _addresses(parts: SplitResult, port: int) -> list[Address]:
    found = []
    for place in parts.netloc.rpartition("@")[2].split(","):
        one = urlsplit(f"//{place}")
        found.append((one.hostname or "", one.port or port))
    return found


class _Door:
    """Opens lanes to any address, with the login and the certificates of the URL."""

    def __init__(self, pool: ConnectionPool, **instead: str | int | None) -> None:
        self._pool = pool
        self._instead = instead

    async def open(self, address: Address, limit_s: float) -> Lane:
        host, port = address
        options = {**self._pool.connection_kwargs, **self._instead, "host": host, "port": port}
        made: AbstractConnection = self._pool.connection_class(**options)
        return await Lane.open(made, limit_s)


class Named:
    """The one server that the URL names."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def open(self, limit_s: float) -> Lane:
        made = self._pool.make_connection()  # type: ignore[no-untyped-call] # redis-py
        return await Lane.open(made, limit_s)

    def is_left(self, error: Exception) -> bool:
        """Its address may lead to another server, once this one is a replica."""
        return isinstance(error, ReadOnlyError)


class Sentinels:
    """The primary of one service, by what sentinels say, and by what it says of itself."""

    def __init__(self, door: _Door, sentinel: _Door, addresses: Sequence[Address], service: str) -> None:
        self._door = door
        self._sentinel = sentinel
        self._addresses = deque(addresses)
        self._service = service

    async def open(self, limit_s: float) -> Lane:
        """Open a lane to the primary; a sentinel that names another server is asked last the next time."""
        return await _first(self._addresses, lambda address: self._by(address, limit_s))

    async def _by(self, sentinel: Address, limit_s: float) -> Lane:
        asked = await self._sentinel.open(sentinel, limit_s)
        news: list[list[bytes] | None] = []
        asked.on_push = news.append
        try:
            await asked.send(("SUBSCRIBE", _SWITCHED))
            named = await asked.send(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service))
            if not named:
                raise ConnectionError(f"no sentinel knows the service {self._service}")  # noqa: TRY301 - handled like what redis-py raises
            lane = await self._primary((named[0].decode(), int(named[1])), limit_s)
        except BaseException:
            asked.close()
            raise
        lane.keep_beside(asked)
        asked.on_push = lambda pushed: self._hear(lane, pushed)
        for pushed in news:
            self._hear(lane, pushed)
        return lane

    def _hear(self, lane: Lane, pushed: list[bytes] | None) -> None:
        """Leave the lane when another server is made the primary, or when that would not be heard any more."""
        if pushed is None or pushed[-1].startswith(f"{self._service} ".encode()):
            lane.retire()

    async def _primary(self, address: Address, limit_s: float) -> Lane:
        lane = await self._door.open(address, limit_s)
        role = "master"
        try:
            with suppress(NoPermissionError):  # then READONLY will tell
                role = (await lane.send(("ROLE",)))[0].decode()
        except BaseException:
            lane.close()
            raise
        if role != "master":
            lane.close()
            raise ReadOnlyError(f"{address[0]}:{address[1]} is a {role} and no primary (yet)")
        return lane

    def is_left(self, error: Exception) -> bool:
        """A primary that has lost its replicas may have lost its place, and be the last one to hear of it."""
        return isinstance(error, ReadOnlyError) or str(error).startswith("NOREPLICAS")


class Cluster:
    """The node that serves the slot of our keys: whichever node is asked for a key names it."""

    def __init__(self, door: _Door, addresses: Sequence[Address], key: str) -> None:
        self._door = door
        self._addresses = deque(addresses)
        self._key = key

    async def open(self, limit_s: float) -> Lane:
        return await _first(self._addresses, lambda address: self._by(address, limit_s))

    async def _by(self, address: Address, limit_s: float) -> Lane:
        for _ in range(_HOPS):
            lane = await self._door.open(address, limit_s)
            try:
                with suppress(AskError):  # the key is on its way to another node, the slot still here
                    await lane.send(("EXISTS", self._key))
            except MovedError as error:
                lane.close()
                address = _target(error, address)
            except BaseException:
                lane.close()
                raise
            else:
                self._prefer(address)
                return lane
        raise ConnectionError("the nodes do not agree on the owner of our keys (yet)")

    def is_left(self, error: Exception) -> bool:
        """A node that is cut off from the others says CLUSTERDOWN: they may know better."""
        if isinstance(error, MovedError):
            self._prefer(_target(error, self._addresses[0]))
        return isinstance(error, MovedError | ClusterDownError | ReadOnlyError)

    def _prefer(self, address: Address) -> None:
        """Ask this node first the next time."""
        with suppress(ValueError):
            self._addresses.remove(address)
        self._addresses.appendleft(address)


def _target(error: MovedError, asked: Address) -> Address:
    """Return where a MOVED leads; it may leave out the host, which is then the one that was asked."""
    return (error.host or asked[0], error.port)


async def _first(addresses: deque[Address], open_by: Callable[[Address], Awaitable[Lane]]) -> Lane:
    """Return the first lane that one of the addresses leads to; an address that fails moves to the end."""
    failed: Exception | None = None
    for _ in range(len(addresses)):
        address = addresses[0]
        try:
            async with asyncio.timeout(_ASK_S):
                return await open_by(address)
        except (RedisError, OSError) as error:
            failed = error
            with suppress(ValueError):
                addresses.remove(address)
            addresses.append(address)
    raise failed or ConnectionError("no address")
