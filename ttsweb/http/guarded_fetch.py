"""Fetch and post to URLs that users name, without being led into our own network.

A URL is read, and its host resolved, once; every address that the host has must be public, and one
of exactly these is dialled; the name is still what the certificate is checked against. Proxies of
the environment are not used. Time is bounded as a whole, bytes while they arrive.
"""

from __future__ import annotations

import functools
import ipaddress
import queue
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpcore
import httpx

from ttsweb.refusals import RefusedError

# Written out, since what `is_global` says differs between the versions of Python.
_REFUSED_4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
        "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
        "168.63.129.16/32",  # Azure's services for the machine itself
    )
)  # fmt: skip
_GLOBAL_6 = ipaddress.IPv6Network("2000::/3")  # all that is assigned for public use
_REFUSED_6 = tuple(
    ipaddress.IPv6Network(network)
    # Protocols (ORCHID, benchmarks), two of documentation, the former 6bone.
    for network in ("2001::/23", "2001:db8::/32", "3fff::/20", "3ffe::/16")
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Return whether `address`, an IP address as text, is one of the public Internet.

    An IPv6 address that embeds an IPv4 address (mapped, NAT64, 6to4, Teredo) is judged by that one
    too. Text that is no address is not public.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is None and found not in _NAT64:
            embedded = [found.sixtofour, *(found.teredo or ())]
            is_6 = found in _GLOBAL_6 and found.is_global
            is_6 = is_6 and not any(found in network for network in _REFUSED_6)
            return is_6 and all(one is None or _is_public_4(one) for one in embedded)
        # NAT64 is how a host without IPv4 reaches one with it.
        found = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
    return _is_public_4(found)


def _is_public_4(address: ipaddress.IPv4Address) -> bool:
    return address.is_global and not any(address in network for network in _REFUSED_4)


MOST_CHARACTERS = 2000
_NAME = re.compile(r"(?=.{1,253}\.?$)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_][a-z0-9_-]{0,62})*\.?")
_PRIVATE_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
_PORTS = {"http": 80, "https": 443}


class FetchError(RefusedError):
    """A URL cannot be used.

    Its codes are url_invalid, url_scheme, url_private_address, url_unresolvable, url_unreachable,
    url_timeout, url_too_large, url_encoded, url_redirects and url_status.
    """


class Deadline:
    """Know how long something may take yet; every step of it asks."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds that are left.

        Raises:
            FetchError: url_timeout, there are none.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.error()
        return left

    def error(self) -> FetchError:
        return FetchError(
            "url_timeout", f"The URL did not answer completely within {self.seconds:g} seconds."
        )


@dataclass(frozen=True)
class CheckedUrl:
    """A URL in its parts, as they are dialled and sent.

    `host` is ASCII, in lower case and without brackets; `host_header` what the server is told;
    `target` path and query, escaped.
    """

    url: str
    scheme: str
    host: str
    port: int
    host_header: str
    target: str

    def join(self, location: str) -> str:
        """Return the URL that a `Location` names, which may be relative to this one."""
        try:
            return str(httpx.URL(self.url).join(location))
        except (httpx.InvalidURL, ValueError) as error:
            raise _invalid("The URL redirects to something that is not a URL.") from error


def check_url(url: str, *, allow_private: bool) -> CheckedUrl:
    """Read a URL and refuse what can be refused without asking a name server.

    Raises:
        FetchError: url_invalid, url_scheme, or url_private_address of an address in any spelling.
    """
    if len(url) > MOST_CHARACTERS:
        raise _invalid(f"The URL is too long: at most {MOST_CHARACTERS} characters are allowed.")
    if "\\" in url or any(char.isspace() for char in url):
        raise _invalid("The URL contains a backslash or a blank; escape it with %.")
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as error:  # ValueError: half a surrogate pair
        sentence = "This is not a URL; expected for example https://example.org/path."
        raise _invalid(sentence) from error
    if parsed.scheme not in _PORTS:
        raise FetchError("url_scheme", "The URL must begin with https:// or http://.")
    if parsed.userinfo:
        raise _invalid("The URL contains a user name or a password; remove them.")
    host, port = parsed.raw_host.decode("ascii"), parsed.port
    port = _PORTS[parsed.scheme] if port is None else port
    if not 1 <= port <= 65535:
        raise _invalid("The URL's port is invalid; use 1 to 65535.")
    _check_host(host, allow_private=allow_private)
    host_header, target = parsed.netloc.decode("ascii"), parsed.raw_path.decode("ascii")
    return CheckedUrl(url, parsed.scheme, host, port, host_header, target)


def resolve(checked: CheckedUrl, deadline: Deadline, *, allow_private: bool) -> list[str]:
    """Return the addresses of a URL's host, asked for once; each of them is public.

    A name of which only some addresses are public is refused: who rules it could choose.

    Raises:
        FetchError: url_unresolvable, url_private_address or url_timeout.
    """
    found = _look_up(checked.host, checked.port, deadline)
    if not found:
        raise FetchError(
            "url_unresolvable", f"The host {checked.host[:100]!r} has no address; check its name."
        )
    if not allow_private and not all(map(is_public, found)):
        raise _private(checked.host)
    return found


def _check_host(host: str, *, allow_private: bool) -> None:
    """Refuse a host that is neither name nor address, and one that is no public one at first sight.

    An address is anything that the system takes for one without asking: 127.1, 0x7f.1, 2130706433.
    """
    plain = host.removesuffix(".")
    address = _as_address(plain)
    if address is None and not _NAME.fullmatch(host):
        raise _invalid("The URL's host is neither a name nor an address.")
    if allow_private:
        return
    is_local = plain in _PRIVATE_NAMES or plain.endswith(".localhost")
    if is_local or (address is not None and not is_public(address)):
        raise _private(host)


def _as_address(host: str) -> str | None:
    try:
        found = socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    return str(found[0][4][0])


def _look_up(host: str, port: int, deadline: Deadline) -> list[str]:
    """Ask the system's resolver, in a thread: it has timeouts of its own, longer than ours."""
    answers: queue.SimpleQueue[list[str]] = queue.SimpleQueue()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            found = []
        answers.put(list(dict.fromkeys(str(one[4][0]) for one in found)))

    threading.Thread(target=ask, name="resolve", daemon=True).start()
    try:
        return answers.get(timeout=deadline.left())
    except queue.Empty:
        raise deadline.error() from None


def _invalid(message: str) -> FetchError:
    return FetchError("url_invalid", message)


def _private(host: str) -> FetchError:
    return FetchError(
        "url_private_address",
        f"The host {host[:100]!r} is not on the public Internet, so this server refuses the "
        "URL. Its administrator can allow such URLs with TTS_ALLOW_PRIVATE_URLS=true.",
    )


_REDIRECTS = (301, 302, 303, 307, 308)
_WRITE_BYTES = 1 << 14
_USER_AGENT = "ttsweb"


@dataclass(frozen=True)
class Fetched:
    """What was found: its bytes, the media type that the server says, and where it was at last."""

    content: bytes
    content_type: str
    url: str


@dataclass(frozen=True)
class Answered:
    """What a server said to a POST; the names of the headers are in lower case."""

    status: int
    headers: Mapping[str, str]


def fetch(
    url: str, *, max_bytes: int, seconds: float, allow_private: bool = False, max_redirects: int = 3
) -> Fetched:
    """Return what a URL holds; a redirect is followed after the same checks as the URL itself.

    Args:
        seconds: for all of it: name, connection, redirects, bytes.

    Raises:
        FetchError: with one of its codes; all are about the URL that was given.
    """
    deadline = Deadline(seconds)
    for _ in range(max_redirects + 1):
        checked = check_url(url, allow_private=allow_private)
        headers = {"Accept": "*/*", "Accept-Encoding": "identity"}
        with _answer(checked, "GET", headers, b"", deadline, allow_private) as answer:
            found = _headers_of(answer)
            if answer.status not in _REDIRECTS:
                content = _read(answer, found, max_bytes)
                return Fetched(content, found.get("content-type", ""), url)
            if "location" not in found:
                raise FetchError("url_redirects", "The URL redirects without a target.")
            url = checked.join(found["location"])
    raise FetchError("url_redirects", f"The URL redirects more than {max_redirects} times.")


def post(
    url: str, *, body: bytes, headers: Mapping[str, str], seconds: float, allow_private: bool
) -> Answered:
    """Send a body and return how the server answers; a redirect is an answer like others.

    The answer's body is not read: nobody is shown it.

    Raises:
        FetchError: there is no answer, or the URL may not be used.
    """
    deadline = Deadline(seconds)
    checked = check_url(url, allow_private=allow_private)
    sent = {**headers, "Content-Length": str(len(body))}
    with _answer(checked, "POST", sent, body, deadline, allow_private) as answer:
        return Answered(answer.status, _headers_of(answer))


@contextmanager
def _answer(
    checked: CheckedUrl,
    method: str,
    headers: Mapping[str, str],
    body: bytes,
    deadline: Deadline,
    allow_private: bool,
) -> Iterator[httpcore.Response]:
    """Yield an answer whose body is still to be read.

    Raises:
        FetchError: here, or while the body is read.
    """
    addresses = resolve(checked, deadline, allow_private=allow_private)
    host, scheme = checked.host.removesuffix(".").encode(), checked.scheme.encode()
    target = httpcore.URL(
        scheme=scheme, host=host, port=checked.port, target=checked.target.encode()
    )
    sent = {"Host": checked.host_header, "User-Agent": _USER_AGENT, "Connection": "close"}
    backend = _CheckedAddresses(addresses, deadline)
    context = _ssl_context() if checked.scheme == "https" else None
    try:
        with (
            httpcore.ConnectionPool(ssl_context=context, network_backend=backend) as pool,
            pool.stream(method, target, headers=list({**sent, **headers}.items()), content=body)
            as answer,
        ):  # fmt: skip
            yield answer
    except httpcore.TimeoutException as error:
        raise deadline.error() from error
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol) as error:
        raise FetchError(
            "url_unreachable", f"The URL's host did not answer properly: {_reason(error)}."
        ) from error


class _CheckedAddresses(httpcore.NetworkBackend):
    """Dial addresses that were checked, whatever host is asked for: names are not looked up."""

    def __init__(self, addresses: list[str], deadline: Deadline) -> None:
        self._addresses, self._deadline = addresses, deadline
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        last: Exception | None = None
        for number, address in enumerate(self._addresses):
            # One address that answers nothing must not use up the time of the others.
            share = self._deadline.left() / (len(self._addresses) - number)
            try:
                stream = self._sockets.connect_tcp(address, port, share)
                return _BoundedStream(stream, self._deadline)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                last = error
        raise last or httpcore.ConnectError("no address")


class _BoundedStream(httpcore.NetworkStream):
    """A connection every step of which has only the time that is left of the whole."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._stream, self._deadline = stream, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _WRITE_BYTES):
            self._stream.write(buffer[start : start + _WRITE_BYTES], self._deadline.left())

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, self._deadline.left())
        return _BoundedStream(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _read(answer: httpcore.Response, headers: Mapping[str, str], max_bytes: int) -> bytes:
    if answer.status != 200:
        raise FetchError(
            "url_status",
            f"The URL answered with the status {answer.status}; check that it can be fetched "
            "without logging in.",
        )
    if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        sentence = "The URL's answer is compressed, although that was not requested."
        raise FetchError("url_encoded", sentence)
    sentence = f"The file at the URL has more than {max_bytes:,} bytes; use a smaller file."
    too_large = FetchError("url_too_large", sentence)
    said = headers.get("content-length", "")
    if said.isascii() and said.isdigit() and int(said[:20]) > max_bytes:
        raise too_large
    content = bytearray()
    for chunk in answer.iter_stream():
        content += chunk
        if len(content) > max_bytes:
            raise too_large
    return bytes(content)


def _headers_of(answer: httpcore.Response) -> dict[str, str]:
    pairs = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.headers)
    return {name.lower(): value for name, value in pairs}


@functools.cache
def _ssl_context() -> ssl.SSLContext:
    """Return a context that checks certificates; `SSL_CERT_FILE` may name further authorities."""
    return httpx.create_ssl_context()


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
