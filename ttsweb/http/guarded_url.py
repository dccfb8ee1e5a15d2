"""Read a URL that a user named, and find out to which addresses it leads; nothing is dialled."""

from __future__ import annotations

import ipaddress
import queue
import re
import socket
import threading
import time
from dataclasses import dataclass

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
    if isinstance(found, ipaddress.IPv4Address):
        return _is_public_4(found)
    return _is_public_6(found)


def _is_public_4(address: ipaddress.IPv4Address) -> bool:
    return address.is_global and not any(address in network for network in _REFUSED_4)


def _is_public_6(address: ipaddress.IPv6Address) -> bool:
    if address.ipv4_mapped is not None:
        return _is_public_4(address.ipv4_mapped)
    if address in _NAT64:  # how a host without IPv4 reaches it
        return _is_public_4(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    embedded = [address.sixtofour, *(address.teredo or ())]
    if any(one is not None and not _is_public_4(one) for one in embedded):
        return False
    return (
        address in _GLOBAL_6
        and address.is_global
        and not any(address in network for network in _REFUSED_6)
    )


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
        raise _invalid(
            "This is not a URL; expected for example https://example.org/path."
        ) from error
    if parsed.scheme not in _PORTS:
        raise FetchError("url_scheme", "The URL must begin with https:// or http://.")
    if parsed.userinfo:
        raise _invalid("The URL contains a user name or a password; remove them.")
    host, port = parsed.raw_host.decode("ascii"), parsed.port
    port = _PORTS[parsed.scheme] if port is None else port
    if not 1 <= port <= 65535:
        raise _invalid("The URL's port is invalid; use 1 to 65535.")
    checked = CheckedUrl(
        url=url,
        scheme=parsed.scheme,
        host=host,
        port=port,
        host_header=parsed.netloc.decode("ascii"),
        target=parsed.raw_path.decode("ascii"),
    )
    _check_host(host, allow_private=allow_private)
    return checked


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
    """Return the address that a host spells in whatever way; None for a name."""
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
