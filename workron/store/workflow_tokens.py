"""Tokens that allow a workflow job's command to add jobs to its workflow: `$WORKRON_TOKEN`.

    wf1.<workflow>.<job>.<fence>.<expiry, s>[.<key>].<HMAC-SHA256 of all before, in hex>

The secret is created once and kept in Redis (`token_secret` in `meta`). A token is valid while the attempt that it
names has its lease, for at most 30 days and only for its workflow. `key` is the API key of a worker that is limited
to some queues, so that the token is limited to them, too.
"""

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass, replace
from typing import Final

from workron.models import Claim
from workron.redis import formats
from workron.redis.connection import Connection
from workron.redis.keys import Keys
from workron.store import decode

_PREFIX: Final = "wf1"
_LONGEST_S: Final = 30 * 24 * 3600
_REMEMBERED_S: Final = 60.0
"""Redis may lose its data and get another secret: it is read again after this time."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The content of a token: an attempt, and the workflow to which it may add jobs."""

    workflow: str
    job: str
    fence: str
    key: str | None = None
    """Id of the API key with which the job was submitted: the token has at most its rights."""
    holder: str | None = None
    """Id of the API key with which the job was claimed, if limited to queues: so is the token."""


class Tokens:
    """Issues and verifies the tokens of one namespace."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self._connection = connection
        self._keys = keys
        self._secret: bytes | None = None
        self._asked_s = -_REMEMBERED_S

    async def equip(self, claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
        """Return the claims, with a token for jobs of workflows; without it if Redis has no room for the secret."""
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
        """Return a claim with its token bound to the key with which it was claimed."""
        more = dict(claim.more)
        token, secret = more.pop("token", None), self._secret
        if token is not None and secret is not None:
            more["token"] = _signed(secret, *token.split(".")[:5], key_id)
        return replace(claim, more=more)

    async def judge(self, token: str) -> Grant | None:
        """Return the current rights of a token; None if it is forged, expired, or its attempt is no longer running."""
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
        if isinstance(held, Exception) or isinstance(about, Exception):  # damaged: its rights are unknown
            return None
        beat = formats.read_heartbeat(held)
        if beat is None or str(beat.fence) != fence:
            return None
        key, array = about
        if key is None and array is not None:  # a task: its array has what all have in common
            key = await self._connection.call("HGET", self._keys.job(array.decode()), "key")
        return Grant(workflow, job, fence, decode.text(key), *holder)

    async def _current(self) -> bytes | None:
        """Return the secret; None if Redis was rolled back to a time before it during the call."""
        if self._secret is None or time.monotonic() - self._asked_s > _REMEMBERED_S:
            secret = await self._connection.call("HGET", self._keys.meta, "token_secret")
            if secret is None:  # of several created at once, the first one counts
                await self._connection.call("HSETNX", self._keys.meta, "token_secret", secrets.token_hex(32))
                secret = await self._connection.call("HGET", self._keys.meta, "token_secret")
            self._secret, self._asked_s = secret, time.monotonic()
        return self._secret


def is_token(text: str) -> bool:
    """Return whether it has the form of a token."""
    return text.startswith(f"{_PREFIX}.")


def _equipped(claim: Claim, secret: bytes) -> Claim:
    expiry = str(int(time.time()) + _LONGEST_S)
    token = _signed(secret, _PREFIX, claim.more["workflow"], claim.id, str(claim.fence), expiry)
    return replace(claim, more={**claim.more, "token": token})


def _signed(secret: bytes, *words: str) -> str:
    said = ".".join(words)
    return f"{said}.{hmac.new(secret, said.encode(), hashlib.sha256).hexdigest()}"
