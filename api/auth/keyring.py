"""Authentication of requests: by the API's master key, a stored API key, or a job's token."""

import hashlib
import hmac
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from api.auth.callers import Caller
from workron.durations import to_seconds
from workron.models import KeyRecord
from workron.store.api_keys import id_in, is_of
from workron.store.workflow_tokens import is_token

if TYPE_CHECKING:
    from workron.store import Store

REMEMBERED_S: Final = 4.5
"""How long a lookup is cached: together with `callers.FRESH_S`, a revoked key is valid for at most 5 s."""
_MOST_REMEMBERED: Final = 2000
_MOST_UNKNOWN: Final = 200
"""Maximum of cached unknown ids: anyone can invent them, so they must not evict real ones."""


class KeyCheck:
    """Compares `Authorization` headers with one key, in constant time; only the key's hash is in memory."""

    def __init__(self, api_key: str) -> None:
        self._digest = hashlib.sha256(api_key.encode()).digest()

    def accepts(self, authorization: bytes | None) -> bool:
        scheme, _, credentials = (authorization or b"").partition(b" ")
        if scheme.lower() != b"bearer":
            return False
        return hmac.compare_digest(hashlib.sha256(credentials.strip()).digest(), self._digest)


@dataclass(frozen=True, slots=True)
class _Found:
    record: KeyRecord | None
    until_s: float


class Keyring:
    """All keys of this API. The master key needs no store, so that it works during an outage.

    Other keys are read from the store, at most once per `REMEMBERED_S`; raises StoreUnavailable if that fails.
    """

    def __init__(self, api_key: str, store: "Store") -> None:
        self._master = KeyCheck(api_key)
        self._store = store
        self._found: OrderedDict[str, _Found] = OrderedDict()
        self._unknown: OrderedDict[str, _Found] = OrderedDict()

    def is_master(self, authorization: bytes | None) -> bool:
        return self._master.accepts(authorization)

    async def caller(self, authorization: bytes | None, method: str, path: str) -> Caller | None:
        """Return the caller with this header if it is not the master key; None if it is invalid for this request."""
        scheme, _, credentials = (authorization or b"").partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        text = credentials.strip().decode("latin-1")
        if is_token(text):
            return await self._of_token(text, method, path)
        key_id = id_in(text)
        record = await self._record(key_id) if key_id is not None else None
        return Caller.with_key(record) if record is not None and is_of(record, text) else None

    async def _of_token(self, token: str, method: str, path: str) -> Caller | None:
        grant = await self._store.attempts.tokens.judge(token)
        if grant is None or (method, path) not in _opened(grant.workflow):
            return None
        keys = [await self._record(key_id) if key_id is not None else None for key_id in (grant.key, grant.holder)]
        if (keys[0] is None) != (grant.key is None) or (keys[1] is None) != (grant.holder is None):
            return None  # one of them is over
        return Caller.with_token(grant, *keys)

    async def _record(self, key_id: str) -> KeyRecord | None:
        now_s = time.monotonic()
        found = self._found.get(key_id) or self._unknown.get(key_id)
        if found is None or found.until_s <= now_s:
            record = await self._store.api_keys.find(key_id)
            left_s = REMEMBERED_S if record is None or record.left_ms is None else to_seconds(record.left_ms)
            usable = None if record is None or record.expired else record
            found = _Found(usable, now_s + max(0.0, min(REMEMBERED_S, left_s)))
            self._remember(key_id, found)
        return found.record

    def _remember(self, key_id: str, found: _Found) -> None:
        self.forget(key_id)
        known = found.record is not None
        kept, most = (self._found, _MOST_REMEMBERED) if known else (self._unknown, _MOST_UNKNOWN)
        kept[key_id] = found
        if len(kept) > most:
            kept.popitem(last=False)

    def forget(self, key_id: str) -> None:
        """Remove a key from the cache."""
        self._found.pop(key_id, None)
        self._unknown.pop(key_id, None)


def _opened(workflow: str) -> set[tuple[str, str]]:
    """Return the operations allowed with a token: read its workflow and add jobs to it."""
    path = f"/workflows/{workflow}"
    return {("GET", path), ("POST", f"{path}/jobs")}
