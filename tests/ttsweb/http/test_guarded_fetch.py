"""URLs that users name are fetched within bounds, and never lead into our own network."""

from __future__ import annotations

import contextlib
import gzip
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ttsweb.http.listeners import Listener, listening
from ttsweb.http import guarded_fetch
from ttsweb.http.guarded_fetch import Fetched, FetchError, check_url, fetch, is_public, post

REAL_LOOK_UP = socket.getaddrinfo


@pytest.fixture
def server() -> Iterator[Listener]:
    with listening() as listener:
        yield listener


class Names:
    """A resolver: names it was told, each answer once, the last for ever; it counts questions."""

    def __init__(self) -> None:
        self.answers: dict[str, list[list[str]]] = {}
        self.asked: list[str] = []

    def look_up(self, host: Any, port: Any, *args: Any, **options: Any) -> Any:
        if options.get("flags", 0) & socket.AI_NUMERICHOST or host not in self.answers:
            options["flags"] = socket.AI_NUMERICHOST  # no test asks a real name server
            return REAL_LOOK_UP(host, port, *args, **options)
        self.asked.append(host)
        answers = self.answers[host]
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [one for name in found for one in REAL_LOOK_UP(name, port, type=options["type"])]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """The resolver of this process; 127.0.0.1 counts as public, so that servers can be reached."""
    found = Names()
    monkeypatch.setattr(socket, "getaddrinfo", found.look_up)
    monkeypatch.setattr(
        guarded_fetch, "is_public", lambda one: one == "127.0.0.1" or is_public(one)
    )
    return found


def code_of(url: str, **options: Any) -> str:
    values: dict[str, Any] = {"max_bytes": 1000, "seconds": 5.0, **options}
    with pytest.raises(FetchError) as caught:
        fetch(url, **values)
    assert str(caught.value)
    return caught.value.code


def test_what_a_url_holds_is_fetched(names: Names, server: Listener) -> None:
    names.answers["clips.example"] = [["127.0.0.1"]]
    server.answers = [(200, {"Content-Type": "audio/wav", "Content-Length": "4"}, b"RIFF")]
    url = f"http://clips.example:{server.port}/a b.wav?x=ü".replace(" ", "%20")
    found = fetch(url, max_bytes=4, seconds=60)

    assert found == Fetched(b"RIFF", "audio/wav", url)
    arrived = server.arrived[0]
    assert (arrived.method, arrived.path) == ("GET", "/a%20b.wav?x=%C3%BC")
    assert arrived.headers["host"] == f"clips.example:{server.port}"
    assert arrived.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1", "2130706433", "0x7f.1", "0x7f000001", "017700000001", "0",
        "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[fe80::1]",
        "10.0.0.1", "169.254.169.254", "[64:ff9b::a9fe:a9fe]", "[2002:7f00:1::]", "127.0.0.1.",
        "127。0。0。1", "localhost", "LOCALHOST", "localhost.", "a.localhost", "100.64.1.1",
    ],
)  # fmt: skip
def test_private_host_is_refused_before_any_name_is_asked_for(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(*_: object) -> None:
        raise AssertionError("a name server was asked")

    monkeypatch.setattr(guarded_fetch, "_look_up", no_thread)

    assert code_of(f"http://{host}/") == "url_private_address"
    assert code_of(f"https://{host}:8443/x") == "url_private_address"


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("file:///etc/passwd", "url_scheme"), ("ftp://example.org/", "url_scheme"),
        ("gopher://example.org/", "url_scheme"), ("data:audio/wav;base64,AAAA", "url_scheme"),
        ("/etc/passwd", "url_scheme"), ("//example.org/x", "url_scheme"), ("", "url_scheme"),
        ("http://", "url_invalid"), ("http:///x", "url_invalid"),
        ("http://user:word@example.org/", "url_invalid"),
        ("http://user@example.org/", "url_invalid"),
        ("http://example.org:99999/", "url_invalid"), ("http://example.org:0/", "url_invalid"),
        ("http://example.org:x/", "url_invalid"), ("http://exa mple.org/", "url_invalid"),
        ("http://example.org/a b", "url_invalid"),
        ("http://example.org\\@127.0.0.1/", "url_invalid"),
        ("http://example.org/\x00", "url_invalid"),
        ("http://example.org/\r\nHost: x", "url_invalid"),
        ("http://example.org/\ud800", "url_invalid"), ("http://\ud800/", "url_invalid"),
        ("http://①②⑦.0.0.1/", "url_invalid"), ("http://[::1", "url_invalid"),
        ("http://[fe80::1%25eth0]/", "url_invalid"), ("http://example%00.org/", "url_invalid"),
        ("http://" + "a" * 70 + ".org/", "url_invalid"),
        ("http://example.org/" + "a" * 2000, "url_invalid"),
    ],
)  # fmt: skip
def test_what_is_no_url_of_the_web_is_refused(url: str, code: str) -> None:
    assert code_of(url) == code


@pytest.mark.parametrize(
    "addresses", [["127.0.0.2"], ["127.0.0.1", "10.0.0.1"], ["10.0.0.1", "127.0.0.1"]]
)
def test_name_with_a_private_address_is_refused(
    addresses: list[str], names: Names, server: Listener
) -> None:
    names.answers["inner.example"] = [addresses]
    assert code_of(f"http://inner.example:{server.port}/") == "url_private_address"
    assert server.arrived == []


def test_name_is_asked_for_once_in_ascii_so_a_second_answer_changes_nothing(
    names: Names, server: Listener
) -> None:
    names.answers["xn--bcher-kva.example"] = [["127.0.0.1"], ["10.0.0.1"]]
    fetch(f"http://Bücher.example:{server.port}/", max_bytes=10, seconds=60)
    assert names.asked == ["xn--bcher-kva.example"]
    (arrived,) = server.arrived
    assert arrived.headers["host"] == f"xn--bcher-kva.example:{server.port}"


def test_name_that_nobody_knows_is_unresolvable_and_a_slow_name_server_waited_for_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert code_of("http://nowhere.example/") == "url_unresolvable"

    is_over = threading.Event()
    monkeypatch.setattr(guarded_fetch, "_as_address", lambda _: None)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: is_over.wait() and [])
    assert code_of("http://slow.example/", seconds=0.3) == "url_timeout"
    is_over.set()


def test_redirects_are_followed(names: Names, server: Listener) -> None:
    names.answers["a.example"] = names.answers["b.example"] = [["127.0.0.1"]]
    there = f"http://b.example:{server.port}/there"
    server.answers = [
        (302, {"Location": "/next"}, b""),
        (307, {"Location": there}, b""),
        (200, {}, b"found"),
    ]

    found = fetch(f"http://a.example:{server.port}/first", max_bytes=10, seconds=60)

    assert (found.content, found.url) == (b"found", there)
    assert [one.path for one in server.arrived] == ["/first", "/next", "/there"]


@pytest.mark.parametrize(
    ("location", "code"),
    [
        ("http://127.0.0.9:{port}/", "url_private_address"),
        ("http://inner.example:{port}/", "url_private_address"),
        ("http://[::ffff:10.0.0.1]/", "url_private_address"),
        ("file:///etc/passwd", "url_scheme"),
        ("http://user:word@a.example/", "url_invalid"),
        ("http://[::1", "url_invalid"),
    ],
)
def test_redirect_to_what_would_be_refused_is_refused(
    location: str, code: str, names: Names, server: Listener
) -> None:
    names.answers["a.example"] = [["127.0.0.1"]]
    names.answers["inner.example"] = [["127.0.0.9"]]
    server.answers = [(301, {"Location": location.format(port=server.port)}, b"")]
    assert code_of(f"http://a.example:{server.port}/") == code
    assert len(server.arrived) == 1


def test_redirects_without_end_or_target_are_refused(names: Names, server: Listener) -> None:
    server.answers = [(302, {"Location": "/again"}, b"")]
    assert (code_of(server.url), len(server.arrived)) == ("url_redirects", 4)
    server.answers = [(302, {}, b"")]
    assert code_of(server.url) == "url_redirects"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        # More bytes than are taken, whatever the length says.
        *(((200, headers, b"x" * 1001), "url_too_large")
          for headers in ({"Content-Length": "1001"}, {"Content-Length": "9" * 18}, {})),
        ((200, {"Content-Encoding": "gzip"}, gzip.compress(b"x" * 10**6)), "url_encoded"),
        *(((status, {}, b""), "url_status") for status in (204, 401, 404, 500)),
        (b"", "url_unreachable"), (b"nonsense\r\n\r\n", "url_unreachable"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", "url_unreachable"),
    ],
)  # fmt: skip
def test_answer_that_cannot_be_used_is_refused(
    answer: Any, code: str, names: Names, server: Listener
) -> None:
    is_raw = isinstance(answer, bytes)
    server.answers = [(lambda connection: connection.sendall(answer)) if is_raw else answer]
    assert code_of(server.url) == code


@pytest.mark.parametrize(
    ("start", "piece", "seconds", "code"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536, 30.0, "url_too_large"),  # it never ends
        *((start, b"x", 0.5, "url_timeout") for start in (
            b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"
        )),  # it drips
    ],
    ids=range(4),
)  # fmt: skip
def test_answer_without_end_is_cut_off(
    start: bytes, piece: bytes, seconds: float, code: str, names: Names, server: Listener
) -> None:
    is_over = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.sendall(start)
        while not is_over.wait(0.02 if len(piece) == 1 else 0):
            connection.sendall(piece)

    server.answers = [drip]
    assert code_of(server.url, seconds=seconds) == code
    is_over.set()


def test_host_that_takes_no_connection_is_unreachable(names: Names) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert code_of(f"http://127.0.0.1:{port}/") == "url_unreachable"


def test_second_address_is_tried_when_the_first_takes_no_connection(
    names: Names, server: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarded_fetch, "is_public", lambda _: True)
    names.answers["two.example"] = [["127.0.0.7", "127.0.0.1"]]
    fetch(f"http://two.example:{server.port}/", max_bytes=10, seconds=60)
    assert len(server.arrived) == 1


def test_private_address_is_used_where_that_is_allowed(server: Listener) -> None:
    server.answers = [(200, {}, b"inside")]
    assert fetch(server.url, max_bytes=10, seconds=60, allow_private=True).content == b"inside"
    assert code_of("file:///etc/passwd", allow_private=True) == "url_scheme"
    assert code_of("http://u:p@127.0.0.1/", allow_private=True) == "url_invalid"
    assert check_url("http://localhost:1/", allow_private=True).port == 1


def test_proxy_of_the_environment_is_not_used(
    server: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    fetch(server.url, max_bytes=10, seconds=60, allow_private=True)
    assert len(server.arrived) == 1


def test_post_sends_body_and_headers_and_follows_no_redirect(
    names: Names, server: Listener
) -> None:
    server.answers = [(307, {"Location": "/other", "Retry-After": "7"}, b"see there")]
    answered = post(
        server.url, body=b"\xff" * 100_000, headers={"X-A": "b"}, seconds=60, allow_private=False
    )
    assert (answered.status, answered.headers["retry-after"]) == (307, "7")
    assert [(one.method, one.body) for one in server.arrived] == [("POST", b"\xff" * 100_000)]
    assert server.arrived[0].headers["x-a"] == "b"


def test_post_to_a_private_address_is_refused(server: Listener) -> None:
    with pytest.raises(FetchError) as caught:
        post(server.url, body=b"", headers={}, seconds=60, allow_private=False)
    assert (caught.value.code, server.arrived) == ("url_private_address", [])


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl program was found")
    path = tmp_path / "pair.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "cert")]
    command += ["-subj", "/CN=clips.example", "-addext", "subjectAltName=DNS:clips.example"]
    subprocess.run(command, check=True, capture_output=True)
    path.write_bytes((tmp_path / "key").read_bytes() + (tmp_path / "cert").read_bytes())
    return path


@contextlib.contextmanager
def secure_server(certificate: Path, shown: list[str]) -> Iterator[Listener]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.sni_callback = lambda _, name, __: shown.append(str(name))
    with listening(context) as listener:
        yield listener


def test_certificate_is_checked_against_the_name_though_an_address_is_dialled(
    certificate: Path, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    names.answers["clips.example"] = names.answers["other.example"] = [["127.0.0.1"]]
    names.answers["clips.example."] = [["127.0.0.1"]]
    shown: list[str] = []
    with secure_server(certificate, shown) as server:
        assert code_of(f"https://clips.example:{server.port}/") == "url_unreachable"  # who signed?

        trusting = httpx.create_ssl_context()
        trusting.load_verify_locations(certificate)
        monkeypatch.setattr(guarded_fetch, "_ssl_context", lambda: trusting)
        for host in ("clips.example", "clips.example."):
            fetch(f"https://{host}:{server.port}/", max_bytes=10, seconds=60)
        assert code_of(f"https://other.example:{server.port}/") == "url_unreachable"

        assert len(server.arrived) == 2
        assert set(shown) == {"clips.example", "other.example"}


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8", "193.99.144.80", "172.32.0.1", "100.128.0.1", "2606:4700:4700::1111",
        "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1",
    ],
)  # fmt: skip
def test_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "10.1.2.3", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254",
        "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8",
        "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "203.0.113.9", "224.0.0.1",
        "239.255.255.255", "240.0.0.1", "255.255.255.255", "::", "::1", "::7f00:1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::808:808", "100::1", "2001::1", "2001:0:808:808:0:0:80ff:fffe",
        "2001:db8::1", "2002:7f00:1::1", "2002:a00:1::", "3fff::1", "4000::1", "fc00::1",
        "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "localhost", "",
    ],
)  # fmt: skip
def test_any_other_address_is_not(address: str) -> None:
    assert not is_public(address)
