"""Checks the URL of a Redis before anything else reads it. No message has a part of its login."""

import re
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from workron.errors import SettingsError

_BASES: Final = ("redis", "rediss")
_KINDS: Final = ("", "sentinel", "cluster")
_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_ESCAPED: Final = "in a user or a password, write # as %23, / as %2F, ? as %3F, @ as %40"

_QUOTED: Final = re.compile(r"'[A-Za-z_]+'")


def check_url(url: str) -> None:
    """Raise SettingsError if a URL names no Redis, or names something that would be ignored."""
    base, _, kind = url.partition("://")[0].partition("+")
    if "://" not in url or (base not in _BASES and (base, kind) != ("unix", "")) or kind not in _KINDS:
        raise _wrong("must begin with redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://")
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
    except ValueError:
        raise _wrong(f"has a host that is not valid; {_ESCAPED}") from None
    behind_login = "" if base == "unix" else f"{parts.path}{parts.query}"
    if "#" in url or "@" in behind_login or "@" in parts.netloc.rpartition("@")[0]:
        raise _wrong(f"has a character that ends its login; {_ESCAPED}")
    if base == "unix":
        databases = [options.get("db")]
    else:
        _check_hosts(parts.netloc.rpartition("@")[2], several=bool(kind))
        databases = [_database(parts.path.strip("/"), kind), options.get("db")]
    if any(database and not (database.isascii() and database.isdecimal()) for database in databases):
        raise _wrong("names a database that is not a number")


def wrong_option(url: str, error: Exception) -> SettingsError:
    """Return what is wrong with an option, from an error of redis-py or of TLS; their texts may have a value."""
    if isinstance(error, OSError):
        why = _unreadable_file(url) or "a file of certificates or keys that it names is not one"
        return _wrong(f"has a wrong option: {why}")
    quoted = _QUOTED.search(str(error))
    name = f" {quoted[0]}" if quoted else ""
    return _wrong(
        f"has an unknown option{name}" if isinstance(error, TypeError) else f"has an option{name} with a wrong value"
    )


def why_refused(text: str) -> str:
    """Return why a server refuses a login, for its answer; any other answer as it is."""
    if text.startswith(("NOAUTH", "HELLO must be called", "Authentication required")):
        return "it requires a password, and the Redis URL has none: redis://:PASSWORD@HOST"
    if text.startswith(("WRONGPASS", "invalid username-password", "invalid password", "AUTH <password> called")):
        return "the user or the password of the Redis URL is wrong"
    return text


def _unreadable_file(url: str) -> str | None:
    """Return the option and the file of a URL that can't be read, with the reason; None if all can."""
    options = dict(parse_qsl(urlsplit(url).query))
    for name in _FILES:
        if path := options.get(name):
            try:
                with open(path, "rb"):
                    pass
            except OSError as error:
                return f"{name}: can't read {path}: {(error.strerror or '').lower()}"
    return None


def _check_hosts(places: str, *, several: bool) -> None:
    for place in places.split(",") if several else [places]:
        try:
            one = urlsplit(f"//{place}")
            if not one.hostname and (several or place):
                raise _wrong(f"names no host; {_ESCAPED}")
            if one.port == 0:
                raise ValueError  # noqa: TRY301 - like one that is too large
        except ValueError:
            raise _wrong(f"has a port that is not a number from 1 to 65535; {_ESCAPED}") from None


def _database(path: str, kind: str) -> str:
    if kind != "sentinel":
        return path
    service, _, database = path.partition("/")
    if not service:
        raise _wrong("does not name the service: redis+sentinel://HOST:PORT,HOST:PORT/SERVICE")
    return database


def _wrong(what: str) -> SettingsError:
    return SettingsError(f"the Redis URL {what}")
