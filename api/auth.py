"""How a request proves that it knows the API key."""

import hashlib
import hmac


class KeyCheck:
    """Compares `Authorization` headers with one key, in constant time; only the key's hash is held."""

    def __init__(self, api_key: str) -> None:
        self._digest = hashlib.sha256(api_key.encode()).digest()

    def accepts(self, authorization: bytes | None) -> bool:
        scheme, _, credentials = (authorization or b"").partition(b" ")
        if scheme.lower() != b"bearer":
            return False
        return hmac.compare_digest(hashlib.sha256(credentials.strip()).digest(), self._digest)
