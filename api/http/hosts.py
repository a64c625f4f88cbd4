"""The Host allow-list and the check for requests from other sites' pages.

A page on any site can make the browser send requests here, and can let its own name point to this machine (DNS
rebinding). Origin and Sec-Fetch-Site reveal the first, Host the second. Both checks apply to all methods.
"""

import ipaddress
import re
from typing import Final

from workron.settings import LOOPBACK, Settings

_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:/@\s]+))(?::\d{1,5})?", re.IGNORECASE)
_OWN_FETCH: Final = frozenset({"same-origin", "none"})


def host_name(authority: str) -> str | None:
    """Return the lower-case name in a Host header (`name`, `name:port`, `[v6]:port`), None if it is malformed."""
    match = _HOST.fullmatch(authority)
    return (match[1] or match[2]).lower() if match else None


class HostList:
    """The host names that this API accepts, with any port."""

    def __init__(self, settings: Settings) -> None:
        named = (settings.host, *settings.allowed_hosts)
        self._names = LOOPBACK | {name.strip("[]").lower() for name in named}
        self._any_address = _is_wildcard(settings.host)

    def allows(self, authority: str) -> bool:
        name = host_name(authority)
        if name is None:
            return False
        # A server on all addresses is reached by any of them, and an address can't be rebound.
        return name in self._names or (self._any_address and _address(name) is not None)


def same_origin(origin: str | None, fetch_site: str | None, authority: str) -> bool:
    """Return whether a request comes from this server's own page, or not from a web page."""
    if fetch_site is not None and fetch_site not in _OWN_FETCH:
        return False
    if origin is None:
        return True
    scheme, _, from_authority = origin.lower().partition("://")
    return scheme in {"http", "https"} and from_authority == authority.lower()


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _is_wildcard(host: str) -> bool:
    address = _address(host)
    return address is not None and address.is_unspecified
