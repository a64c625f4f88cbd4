"""URLs of Redis: what is asked for the primary, and with which login."""

import pytest

from workron.cli.config import masked_url
from workron.client.connection import check_url, without_login
from workron.errors import InvalidRequest, SettingsError
from workron.redis.connection import Connection, build_client
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
        ("redis+sentinel://a:1,,b/jobs", "names no host"),
        ("redis+sentinel://a/jobs/x", "a database that is not a number"),
        ("redis+cluster://a:one", "a port that is not a number"),
        ("redis+ring://a", "must begin with redis://"),
        ("unix+cluster:///a", "must begin with redis://"),
        ("a password alone", "must begin with redis://"),
        ("redis://a/abc", "a database that is not a number"),
        ("redis://a/0/1", "a database that is not a number"),
        ("redis://a?db=abc", "a database that is not a number"),
        ("unix:///a?db=abc", "a database that is not a number"),
        ("redis://a:99999", "a port that is not a number from 1 to 65535"),
        ("redis://[::1", "a host that is not valid"),
        ("rediss://a?ssl_ca_certs=/nowhere/ca.crt", "ssl_ca_certs: can't read /nowhere/ca.crt: no such file"),
        ("rediss://a?ssl_ca_certs=/etc/passwd", "a file of certificates or keys that it names is not one"),
        ("rediss://a?ssl_cert_reqs=maybe", "an option with a wrong value"),
        ("redis://a?socket_timeout=long", "an option 'socket_timeout' with a wrong value"),
        ("redis://a?colour=blue", "an unknown option 'colour'"),
    ],
)
def test_what_cannot_be_meant_is_refused(url: str, why: str) -> None:
    with pytest.raises(SettingsError, match=f"^the Redis URL .*{why}"):
        Connection.open(url)


@pytest.mark.parametrize("char", "#/?@[")
@pytest.mark.parametrize("user", ["", "user"])
def test_no_message_about_a_url_has_a_part_of_its_password(char: str, user: str) -> None:
    url = f"redis://{user}:s3cret{char}pw@host:6379/0"
    with pytest.raises(SettingsError) as refused:
        Connection.open(url)
    assert not any(part in str(refused.value) for part in ("s3cret", "pw@", "pw'"))
    assert refused.value.__cause__ is None
    assert "s3cret" not in masked_url(url)


@pytest.mark.parametrize(("written", "password"), [("s3%23c%2Fr%3Fe%40t", "s3#c/r?e@t"), ("a:b", "a:b")])
def test_a_password_that_is_written_as_required_is_taken(written: str, password: str) -> None:
    options = build_client(f"redis://:{written}@host/3").connection_pool.connection_kwargs
    assert (options["password"], options["db"]) == (password, 3)
    Connection.open(f"redis://:{written}@host/3")


def test_the_login_of_an_api_stands_in_no_message() -> None:
    assert without_login("http://user:s3cret@host:80/a") == "http://host:80/a"
    assert masked_url("http://user:s3cret@host:80/a") == "http://********@host:80/a"
    with pytest.raises(InvalidRequest) as refused:
        check_url("http//user:s3cret@host")
    assert "s3cret" not in str(refused.value)
