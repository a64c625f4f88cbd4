"""Grounds of several servers, and one with TLS and a user that may do little."""

import asyncio
import itertools
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from redis.asyncio import Redis

from tests.chaos import certificates
from tests.chaos.data_servers import KEYS, Ground
from tests.chaos.node import Node
from tests.chaos.proxy import Proxy
from tests.ports import free_port

PASSWORD: Final = "a-password-of-workron"
ACL: Final = (
    "on >{password} resetkeys resetchannels ~workron:{{*}}:* &workron:{{*}}:* "
    "-@all +@read +@write -@dangerous +eval +evalsha +ping +time +hello +subscribe +publish"
)
"""What docs/deployment.md names."""
AHEAD_S: Final = 5.0
"""How long before a failover an acknowledged job may have been one that the replicas had not yet heard of."""


class Tls(Ground):
    """One server that speaks TLS only, to clients with a certificate, as a user with the documented commands only."""

    async def start(self) -> None:
        keys = self.folder / "keys"
        certificates.make(keys)
        node = Node(
            self.folder / "redis",
            *(f"tls-cert-file {keys}/server.crt", f"tls-key-file {keys}/server.key", f"tls-ca-cert-file {keys}/ca.crt"),
            "tls-auth-clients yes",
            f"user workron {ACL.format(password=PASSWORD)}",
            tls=True,
        )
        self.nodes = [node]
        await node.start()
        self.proxies = [Proxy(node.port)]
        await self.proxies[0].start()
        self.url = (
            f"rediss://workron:{PASSWORD}@127.0.0.1:{self.proxies[0].port}/0?ssl_ca_certs={keys}/ca.crt"
            f"&ssl_certfile={keys}/client.crt&ssl_keyfile={keys}/client.key"
        )


class Sentinel:
    """One sentinel process."""

    def __init__(self, folder: Path, primary: int) -> None:
        folder.mkdir(parents=True)
        self.port = free_port()
        (folder / "sentinel.conf").write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {folder}\nlogfile sentinel.log\n"
            f"sentinel monitor workron 127.0.0.1 {primary} 2\n"
            "sentinel down-after-milliseconds workron 1000\nsentinel failover-timeout workron 3000\n"
        )
        self._process = subprocess.Popen(
            ["redis-server", "sentinel.conf", "--sentinel"], cwd=folder, stdout=subprocess.DEVNULL
        )
        self.client = Redis(port=self.port, protocol=3, socket_timeout=5)

    async def primary(self) -> int:
        """Return the port of the server that it takes for the primary."""
        named: Any = await self.client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "workron")
        return int(named[1])

    async def knows(self, replicas: int, sentinels: int) -> bool:
        said: Any = await self.client.execute_command("SENTINEL", "MASTER", "workron")
        found = {key.decode(): value for key, value in said.items()} if isinstance(said, dict) else _pairs(said)
        return int(found["num-slaves"]) >= replicas and int(found["num-other-sentinels"]) >= sentinels

    async def aclose(self) -> None:
        self._process.kill()
        self._process.wait(10)
        await self.client.aclose()


def _pairs(flat: list[bytes]) -> dict[str, bytes]:
    return {key.decode(): value for key, value in zip(flat[::2], flat[1::2], strict=True)}


class Failover(Ground):
    """A primary, two replicas and three sentinels; `move` takes the primary away until another one has its place."""

    moves = True
    standstill_s = 0.5
    directives: tuple[str, ...] = ()

    async def start(self) -> None:
        self.nodes = [Node(self.folder / "redis-0", *self.directives)]
        await self.nodes[0].start()
        for number in (1, 2):
            replica = f"replicaof 127.0.0.1 {self.nodes[0].port}"
            self.nodes.append(Node(self.folder / f"redis-{number}", replica, *self.directives))
            await self.nodes[-1].start()
        self._at = self.nodes[0]
        self._ways = itertools.cycle((self._kill, self._freeze))
        self.sentinels = [Sentinel(self.folder / f"sentinel-{n}", self.nodes[0].port) for n in range(3)]
        await self.settled()
        await self.nodes[0].until(self._all_known, "the sentinels know all")
        self.url = f"redis+sentinel://{','.join(f'127.0.0.1:{one.port}' for one in self.sentinels)}/workron/0"

    async def _all_known(self) -> bool:
        return all([await sentinel.knows(2, 2) for sentinel in self.sentinels])

    @property
    def primary(self) -> Node:
        return self._at

    async def settled(self) -> None:
        began = time.time()
        before = self._at
        await self.nodes[0].until(self._agreed, "all agree on the primary", within_s=60)
        if self._at is not before:
            self.rollbacks.append((began - AHEAD_S, time.time()))

    async def _agreed(self) -> bool:
        ports = {await sentinel.primary() for sentinel in self.sentinels}
        found = [node for node in self.nodes if node.port in ports]
        if len(ports) != 1 or not all(node.alive for node in self.nodes):
            return False
        for node in self.nodes:
            role: Any = await node.ask("ROLE")
            is_primary = role[0] == b"master"
            if is_primary != (node is found[0]) or not (is_primary or role[3] == b"connected"):
                return False
        self._at = found[0]
        return True

    async def move(self, lasts_s: float = 0.0) -> None:
        await next(self._ways)()
        await self.settled()

    async def _kill(self) -> None:
        """The primary dies, and comes back when another one has its place."""
        node = self._at
        node.kill()
        await self.another_than(node)
        await node.start()

    async def _freeze(self) -> None:
        """The primary stands still; when it goes on, another one has its place, and it does not know."""
        node = self._at
        node.signal(signal.SIGSTOP)
        try:
            await self.another_than(node)
        finally:
            node.signal(signal.SIGCONT)

    async def another_than(self, node: Node) -> None:
        """Wait until the sentinels name another primary than this one."""

        async def elected() -> bool:
            return node.port not in {await sentinel.primary() for sentinel in self.sentinels}

        await node.until(elected, "another primary", within_s=60)

    async def aclose(self) -> None:
        await asyncio.gather(*(sentinel.aclose() for sentinel in getattr(self, "sentinels", ())))
        await super().aclose()


class SafeFailover(Failover):
    """The same, with a primary that takes writes only while a replica hears of them."""

    directives = ("min-replicas-to-write 1", "min-replicas-max-lag 1")


class Cluster(Ground):
    """Three primaries; `move` migrates the slot of our keys to the next of them."""

    moves = True

    async def start(self) -> None:
        options = ("cluster-enabled yes", "cluster-node-timeout 3000")
        buses = [free_port() for _ in range(3)]  # by default so far away that others use it for connections
        self.nodes = [Node(self.folder / f"redis-{n}", f"cluster-port {bus}", *options) for n, bus in enumerate(buses)]
        for node in self.nodes:
            await node.start()
        bounds = (0, 5461, 10923, 16384)
        for node, first, behind in zip(self.nodes, bounds, bounds[1:], strict=False):
            await node.ask("CLUSTER", "ADDSLOTSRANGE", first, behind - 1)
        for other, bus in zip(self.nodes[1:], buses[1:], strict=True):
            await self.nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", other.port, bus)
        self._slot = int(await self.nodes[0].ask("CLUSTER", "KEYSLOT", KEYS.meta))
        self._at = next(n for n, behind in zip(self.nodes, bounds[1:], strict=False) if self._slot < behind)
        await self.settled()
        self.url = f"redis+cluster://{','.join(f'127.0.0.1:{node.port}' for node in self.nodes)}"

    @property
    def primary(self) -> Node:
        return self._at

    async def settled(self) -> None:
        await self.nodes[0].until(self._ok, "the cluster is well", within_s=60)

    async def _ok(self) -> bool:
        states = [await node.ask("CLUSTER", "INFO") for node in self.nodes]
        return all(b"cluster_state:ok" in state and b"cluster_known_nodes:3" in state for state in map(_bytes, states))

    async def move(self, lasts_s: float = 0.0) -> None:
        await self.begin_move()
        await asyncio.sleep(lasts_s)
        await self.finish_move()

    async def begin_move(self) -> None:
        """Open the slot for the migration: from now on scripts are told to come again."""
        source, target = self._at, self._target()
        await target.ask("CLUSTER", "SETSLOT", self._slot, "IMPORTING", _text(await source.ask("CLUSTER", "MYID")))
        await source.ask("CLUSTER", "SETSLOT", self._slot, "MIGRATING", _text(await target.ask("CLUSTER", "MYID")))

    def _target(self) -> Node:
        return self.nodes[(self.nodes.index(self._at) + 1) % len(self.nodes)]

    async def finish_move(self) -> None:
        """Carry the keys over, a hundred at a time, and tell all nodes."""
        source, target = self._at, self._target()
        while names := await source.ask("CLUSTER", "GETKEYSINSLOT", self._slot, 100):
            await source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 20_000, "KEYS", *names)
        owner = _text(await target.ask("CLUSTER", "MYID"))
        for node in (target, source, *self.nodes):
            await node.ask("CLUSTER", "SETSLOT", self._slot, "NODE", owner)
        self._at = target


def _bytes(text: Any) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode()


def _text(text: Any) -> str:
    return text.decode() if isinstance(text, bytes) else str(text)


GROUNDS: Final[dict[str, type[Ground]]] = {
    "single": Ground,
    "tls": Tls,
    "sentinel": Failover,
    "sentinel-safe": SafeFailover,
    "cluster": Cluster,
}
