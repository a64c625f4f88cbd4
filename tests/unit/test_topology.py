"""URLs of Redis: what is asked for the primary, and with which login."""

import pytest

from workron.errors import StoreRefused
from workron.redis.connection import Connection
from workron.redis.topology import Cluster, Named, Place, Sentinels, plain_url


def place(url: str) -> Place:
    found = Connection.open(url, key="workron:{default}:meta")._place
    assert found is not None
    return found


@pytest.mark.parametrize("url", ["redis://h:1/2", "rediss://u:p@h?ssl_check_hostname=no", "unix:///tmp/a.sock"])
def test_a_url_of_one_server_is_left_as_it_is(url: str) -> None:
    assert plain_url(url) == url
    assert isinstance(place(url), Named)


def test_a_sentinel_url_names_sentinels_a_service_and_a_database() -> None:
    url = (
        "redis+sentinel://user:p%40ss@a:1,b,[::1]:3/jobs/2?sentinel_username=s&sentinel_password=t&socket_keepalive=no"
    )
    assert plain_url(url) == "redis://user:p%40ss@a:1/2?socket_keepalive=no"
    found = place(url)
    assert isinstance(found, Sentinels)
    assert list(found._addresses) == [("a", 1), ("b", 26379), ("::1", 3)]
    assert found._service == "jobs"
    primary, sentinel = found._door, found._sentinel
    assert (primary._pool.connection_kwargs["password"], primary._pool.connection_kwargs["db"]) == ("p@ss", 2)
    assert sentinel._instead == {"username": "s", "password": "t", "db": 0}


def test_a_cluster_url_names_some_of_the_nodes() -> None:
    found = place("rediss+cluster://u:p@a:1,b?ssl_check_hostname=no")
    assert isinstance(found, Cluster)
    assert list(found._addresses) == [("a", 1), ("b", 6379)]
    assert found._door._pool.connection_class.__name__ == "SSLConnection"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis+sentinel://a:1,b:2", "does not name the service"),
        ("redis+sentinel://a:1,,b/jobs", "'' is not a host"),
        ("redis+cluster://a:one", "cast to integer"),
        ("redis+ring://a", "is not known"),
        ("unix+cluster:///a", "is not known"),
        ("rediss://a?ssl_ca_certs=/nowhere/ca.crt", "certificates .* can't be read"),
        ("redis://a?colour=blue", "colour"),
    ],
)
def test_what_cannot_be_meant_is_refused(url: str, why: str) -> None:
    with pytest.raises(StoreRefused, match=why):
        Connection.open(url)
