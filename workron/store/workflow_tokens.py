"""Tokens by which the command of a workflow's job may add jobs to its workflow: `$WORKRON_TOKEN`.

    wf1.<workflow>.<job>.<fence>.<expiry, s>[.<key>].<HMAC-SHA256 of all before, in hex>

The secret is made once and kept in Redis (`token_secret` in `meta`). A token is good while the attempt that it
names has its lease, and for 30 days at most; it opens its workflow only. `key` is that of a worker which serves some
queues only: it names it, so that with the token nobody gets beyond them.
"""

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass, replace
from typing import Final

from workron.models import Claim
from workron.redis.connection import Connection
from workron.redis.keys import Keys
from workron.store import decode

_PREFIX: Final = "wf1"
_LONGEST_S: Final = 30 * 24 * 3600
_REMEMBERED_S: Final = 60.0
"""Redis may lose its data and get another secret: it is asked again after this time."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token says: an attempt, and the workflow that it may add to."""

    workflow: str
    job: str
    fence: str
    key: str | None = None
    """Id of the API key that the job was submitted with: with the token nobody may do more than with that."""
    holder: str | None = None
    """Id of the API key that the job was claimed with, if that is limited to queues: nor in other queues than that."""


class Tokens:
    """Issues and judges the tokens of one namespace."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self._connection = connection
        self._keys = keys
        self._secret: bytes | None = None
        self._asked_s = -_REMEMBERED_S

    async def equip(self, claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
        """Return the claims, those of workflows with a token; without it if Redis has no room for the secret."""
        if not any("workflow" in claim.more for claim in claims):
            return claims
        try:
            secret = await self._current()
        except Exception:  # noqa: BLE001 - a claim is worth more than its token
            return claims
        if secret is None:
            return claims
        return tuple(_equipped(claim, secret) if "workflow" in claim.more else claim for claim in claims)

    def for_holder(self, claim: Claim, key_id: str) -> Claim:
        """Return a claim, its token made one that names the key it was claimed with."""
        more = dict(claim.more)
        token, secret = more.pop("token", None), self._secret
        if token is not None and secret is not None:
            more["token"] = _signed(secret, *token.split(".")[:5], key_id)
        return replace(claim, more=more)

    async def judge(self, token: str) -> Grant | None:
        """Return what a token grants now; None if it is forged, expired, or its attempt does not run any more."""
        parts = token.split(".")
        if len(parts) not in (6, 7) or parts[0] != _PREFIX or not (token.isascii() and parts[4].isdigit()):
            return None
        _, workflow, job, fence, expiry, *holder = parts[:-1]
        secret = await self._connection.call("HGET", self._keys.meta, "token_secret")
        if secret is None or not hmac.compare_digest(token, _signed(secret, *parts[:-1])):
            return None
        if len(expiry) > 12 or int(expiry) < time.time():
            return None
        held, about = await self._connection.pipeline(
            [("GET", self._keys.heartbeat(job)), ("HMGET", self._keys.job(job), "key", "array")]
        )
        if isinstance(held, Exception) or isinstance(about, Exception):  # damaged: nobody knows what it may do
            return None
        words = (held or b"").decode().split(" ")
        if words[1:2] != [fence]:
            return None
        key, array = about
        if key is None and array is not None:  # a task: its array has what all have in common
            key = await self._connection.call("HGET", self._keys.job(array.decode().split(" ")[0]), "key")
        return Grant(workflow, job, fence, decode.text(key), *holder)

    async def _current(self) -> bytes | None:
        """Return the secret; None if Redis was set back to a time before it while it was asked."""
        if self._secret is None or time.monotonic() - self._asked_s > _REMEMBERED_S:
            secret = await self._connection.call("HGET", self._keys.meta, "token_secret")
            if secret is None:  # two who make one at once agree on the first
                await self._connection.call("HSETNX", self._keys.meta, "token_secret", secrets.token_hex(32))
                secret = await self._connection.call("HGET", self._keys.meta, "token_secret")
            self._secret, self._asked_s = secret, time.monotonic()
        return self._secret


def is_token(text: str) -> bool:
    """Whether it has the form of a token, so that it is worth judging."""
    return text.startswith(f"{_PREFIX}.")


def _equipped(claim: Claim, secret: bytes) -> Claim:
    expiry = str(int(time.time()) + _LONGEST_S)
    token = _signed(secret, _PREFIX, claim.more["workflow"], claim.id, str(claim.fence), expiry)
    return replace(claim, more={**claim.more, "token": token})


def _signed(secret: bytes, *words: str) -> str:
    said = ".".join(words)
    return f"{said}.{hmac.new(secret, said.encode(), hashlib.sha256).hexdigest()}"
