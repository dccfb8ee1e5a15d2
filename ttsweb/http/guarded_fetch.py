"""Fetch and post to URLs that users name, without being led into our own network.

A host is resolved once, every address it has must be public, and one of exactly these is dialled;
the name is still what the certificate is checked against. Proxies of the environment are not used.
Time is bounded as a whole, bytes while they arrive.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpcore
import httpx

from ttsweb.http.guarded_url import CheckedUrl, Deadline, FetchError, check_url, resolve

__all__ = ["Answered", "FetchError", "Fetched", "fetch", "post"]

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
