"""Which Host and Origin headers are let in."""

import pytest

from api.http.hosts import HostList, same_origin
from workron.settings import Settings


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8080", "LOCALHOST:1", "127.0.0.1:8080", "[::1]", "[::1]:8080"]
)
def test_loopback_names_are_allowed_with_any_port(host: str) -> None:
    assert HostList(Settings()).allows(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "localhost.evil.example",
        "localhost:8080:9",
        "localhost@evil.example",
        "127.0.0.1.evil.example:8080",
        "[::1",
        "::1",
        "[::2]:8080",
        "localhost:",
        "localhost:port",
        "local host",
        "192.168.0.7",
    ],
)
def test_any_other_name_is_refused(host: str) -> None:
    assert not HostList(Settings()).allows(host)


def test_the_names_in_allowed_hosts_are_allowed() -> None:
    hosts = HostList(Settings(allowed_hosts=["Jobs.example", "[fd00::7]"]))
    assert hosts.allows("jobs.example:443")
    assert hosts.allows("[fd00::7]:8080")
    assert not hosts.allows("sub.jobs.example")


def test_an_api_on_all_addresses_is_reached_by_address_but_not_by_any_name() -> None:
    hosts = HostList(Settings(host="0.0.0.0"))  # noqa: S104 - nothing is bound
    assert hosts.allows("192.168.0.7:8080")
    assert hosts.allows("[fd00::7]:8080")
    assert not hosts.allows("evil.example")


@pytest.mark.parametrize(
    ("origin", "fetch_site", "allowed"),
    [
        (None, None, True),
        (None, "none", True),
        ("http://localhost:8080", "same-origin", True),
        ("http://localhost:8080", None, True),
        ("http://localhost:3000", "same-site", False),
        ("http://localhost:3000", None, False),
        ("https://evil.example", None, False),
        ("null", None, False),
        ("file://", None, False),
        ("", None, False),
        (None, "cross-site", False),
        (None, "same-site", False),
        ("http://localhost:8080", "cross-site", False),
    ],
)
def test_only_pages_of_this_server_may_send_requests(origin: str | None, fetch_site: str | None, allowed: bool) -> None:
    assert same_origin(origin, fetch_site, "localhost:8080") is allowed
