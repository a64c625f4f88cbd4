"""How the client reaches an API: through proxies, over TLS, on connections that are kept."""

import base64
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.chaos import certificates
from tests.command_line import TIMEOUT_S, Answer, Call, CommandLine, ScriptedApi, job_document, job_list
from workron.client import Client
from workron.errors import ApiProblem, ApiUnreachable, InvalidRequest

JOB = job_document()["id"]
ELSEWHERE = "http://jobs.invalid:8080"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    certificates.make(tmp_path / "certificates")
    return tmp_path / "certificates"


@pytest.fixture
def secure(folder: Path, api: ScriptedApi) -> ScriptedApi:
    """The scripted API over TLS, with a certificate of an authority of our own."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    api.secure(context)
    api.script(Answer(job_document()))
    return api


@pytest.fixture(autouse=True)
def _no_proxies_or_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@contextmanager
def running(serve: Callable[[], None]) -> Iterator[None]:
    """Run a server until it has ended; a test that fails does not wait for it."""
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()


@contextmanager
def scripted_server(*answers: bytes) -> Iterator[tuple[str, list[threading.Event]]]:
    """Answer one request for each, on a connection of its own that is closed; yields the URL, and an event for each."""
    closed = [threading.Event() for _ in answers]
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answer, event in zip(answers, closed, strict=True):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65_536)
                    connection.sendall(answer)
                event.set()

        with running(serve):
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", closed


@contextmanager
def tunnel(target: str) -> Iterator[tuple[str, list[str]]]:
    """A proxy that connects to the target whatever it is asked for; yields its URL, and the heads of its requests."""
    heads: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def pump(source: socket.socket, sink: socket.socket) -> None:
            with suppress(OSError):
                while data := source.recv(65_536):
                    sink.sendall(data)
                sink.shutdown(socket.SHUT_WR)

        def serve() -> None:
            client, _ = listener.accept()
            heads.append(client.recv(65_536).decode())
            host, port = target.rpartition("/")[2].split(":")
            with client, socket.create_connection((host, int(port))) as server:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=pump, args=(server, client))
                back.start()
                pump(client, server)
                back.join()

        with running(serve):
            yield f"http://user:secret@127.0.0.1:{listener.getsockname()[1]}", heads


def test_a_proxy_in_the_environment_is_asked_for_another_machine(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(job_list(job_document()))
    proxy = api.url.replace("http://", "http://user:p%40ss@")

    ran = scripted("ls", "--url", ELSEWHERE, http_proxy=proxy)

    assert (ran.code, JOB in ran.out) == (0, True)
    headers = api.calls[0].headers
    assert headers["host"] == "jobs.invalid:8080"
    assert headers["proxy-authorization"] == f"Basic {base64.b64encode(b'user:p@ss').decode()}"


def test_no_proxy_is_asked_for_a_host_that_is_excepted(api: ScriptedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", api.url)
    monkeypatch.setenv("no_proxy", "elsewhere,.invalid")

    with Client(ELSEWHERE, patience_s=0) as client, pytest.raises(ApiUnreachable):
        client.health()

    assert api.calls == []


@pytest.mark.parametrize("proxy", ["socks5://user:secret@127.0.0.1:1080", "http://user:secret@:3128"])
def test_a_proxy_of_an_unknown_kind_or_without_a_host_is_refused(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)

    with pytest.raises(InvalidRequest, match="the proxy for http://") as refused:
        Client(ELSEWHERE)

    assert "secret" not in str(refused.value)


def test_tls_goes_through_the_tunnel_of_a_proxy(
    secure: ScriptedApi, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "ca.crt"))
    monkeypatch.setattr("workron.client.connection.is_loopback", lambda _: False)

    with tunnel(secure.url) as (proxy, heads):
        monkeypatch.setenv("https_proxy", proxy)
        with Client(secure.url) as client:
            assert client.job(JOB)["id"] == JOB

    assert heads[0].startswith(f"CONNECT {secure.url.removeprefix('https://')} ")
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'user:secret').decode()}" in heads[0]


def test_a_certificate_needs_an_authority_that_is_trusted(secure: ScriptedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    with Client(secure.url, notify=told.append) as client, pytest.raises(ApiUnreachable, match="certificate"):
        client.job(JOB)

    assert (told, secure.calls) == ([], [])


def test_the_authority_that_the_environment_names_is_trusted(
    secure: ScriptedApi, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "ca.crt"))

    with Client(secure.url, "0123456789abcdef") as client:
        assert [client.job(JOB)["id"] for _ in range(2)] == [JOB, JOB]

    assert secure.calls[0].headers["authorization"] == "Bearer 0123456789abcdef"


def test_a_kept_connection_that_the_server_has_closed_is_no_outage() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
    told: list[str] = []

    with scripted_server(answer, answer) as (url, closed), Client(url, notify=told.append) as client:
        client.health()
        assert closed[0].wait(TIMEOUT_S)
        client.health()

    assert told == []


def test_a_connection_that_was_idle_for_long_is_not_used_again(
    api: ScriptedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.script(Answer(job_document()))

    with Client(api.url) as client:
        client.job(JOB)
        monkeypatch.setattr("workron.client.connection._IDLE_S", 0.0)
        client.job(JOB)

    assert len({call.port for call in api.calls}) == 2


def test_an_informational_response_is_not_taken_for_the_response() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n"
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"

    with scripted_server(hints * 2 + answer) as (url, _), Client(url, patience_s=0) as client:
        assert client.health() == {}


def test_connecting_takes_no_longer_for_a_request_that_waits_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workron.client.connection.ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel accepts, and there is no handshake
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        began_s = time.monotonic()

        with Client(url, patience_s=0) as client, pytest.raises(ApiUnreachable, match="timed out"):
            client.job(JOB, wait_s=20)

    assert time.monotonic() - began_s < 20


def test_a_response_may_take_longer_than_connecting(api: ScriptedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workron.client.connection.ANSWER_S", 0.1)

    def answer(_: Call) -> Answer:
        time.sleep(0.3)  # longer than connecting may take
        return Answer(job_document())

    api.answer = answer
    with Client(api.url, patience_s=0) as client:
        assert client.job(JOB, wait_s=20)["id"] == JOB


def test_a_connection_is_kept_for_the_next_request(api: ScriptedApi) -> None:
    api.script(Answer(job_document()))

    with Client(api.url) as client:
        for _ in range(3):
            client.job(JOB)

    assert len({call.port for call in api.calls}) == 1


def test_an_api_below_a_path_with_a_password_is_reached(api: ScriptedApi) -> None:
    api.script(Answer(job_document()))

    with Client(f"{api.url.replace('://', '://user:secret@')}/workron/") as client:
        client.job(JOB)

    assert api.calls[0].path == f"/workron/jobs/{JOB}"
    assert api.calls[0].headers["authorization"] == f"Basic {base64.b64encode(b'user:secret').decode()}"


def test_a_path_of_the_url_with_a_space_or_other_letters_is_quoted(api: ScriptedApi) -> None:
    api.script(Answer(job_document()))

    with Client(f"{api.url}/our jobs/größe%20a") as client:
        client.job(JOB)

    assert api.calls[0].path == f"/our%20jobs/gr%C3%B6%C3%9Fe%20a/jobs/{JOB}"


def test_a_filter_that_is_not_unicode_is_refused_in_one_line(scripted: CommandLine, api: ScriptedApi) -> None:
    ran = scripted("ls", "--name", "\udcff")

    assert (ran.code, ran.err) == (2, "workron: the request holds text that is not valid Unicode\n")
    assert api.calls == []


@pytest.mark.parametrize("url", ["", "jobs", "ftp://jobs", "http://", "http://a:b", "http://a:0", f"http://{'a' * 70}"])
def test_a_url_that_no_api_can_have_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="the URL of the API must be like"):
        Client(url)


def test_a_key_that_no_header_can_carry_is_refused(api: ScriptedApi) -> None:
    for key in ("schlüssel\u2028", "two\r\nlines: x"):
        with Client(api.url, key) as client, pytest.raises(InvalidRequest, match="HTTP can't carry"):
            client.health()


@pytest.mark.parametrize("text", [b"[]", b"<html>", b'{"errors": [1]}', b'{"errors": 7}'])
def test_a_problem_that_is_none_of_ours_was_a_traceback(text: bytes) -> None:
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\nContent-Length: "
    with (
        scripted_server(head + b"%d\r\n\r\n" % len(text) + text) as (url, _),
        Client(url) as client,
        pytest.raises(ApiProblem, match="does not answer like a Workron API: 400 Bad Request"),
    ):
        client.job(JOB)
