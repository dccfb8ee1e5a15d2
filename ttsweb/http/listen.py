"""Open the socket that the site listens on, say plainly when that can't be, and serve on it.

The web server is a process of its own, `python -m ttsweb.http.listen DESCRIPTOR GRACE_SECONDS`,
whose parent keeps the socket: requests wait instead of being refused while it is started again.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys
import warnings
from collections.abc import Collection

from ttsweb.commands.base import StepError

PORTS_TRIED = 50
BACKLOG = 512
# What nobody has chosen: this machine, and what programs in its containers call it.
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
DEFAULT_HOSTS = LOOPBACK_HOSTS | {"host.docker.internal"}


class ListenError(StepError):
    """The site cannot listen as asked; the text names the remedy."""


def check_address(host: str, allowed_hosts: Collection[str]) -> None:
    """Refuse an address that others can reach while no name is allowed for them.

    Raises:
        ListenError: allowed_hosts_missing, or host_unknown for a name without an address.
    """
    if all(ipaddress.ip_address(address).is_loopback for address in _addresses(host)):
        return
    if set(allowed_hosts) in (LOOPBACK_HOSTS, DEFAULT_HOSTS):
        raise ListenError(
            "allowed_hosts_missing",
            f"{host} accepts connections from other machines, but every request of theirs "
            "would be refused. Set TTS_ALLOWED_HOSTS to the names or addresses that they "
            "use, such as TTS_ALLOWED_HOSTS=tts.example.org,192.168.1.20",
        )


def open_socket(host: str, port: int, *, or_next: bool) -> socket.socket:
    """Return a listening socket; with `or_next`, on the next free port when this one is taken.

    Raises:
        ListenError: port_taken, port_forbidden, host_unknown or address_unusable.
    """
    family = socket.AF_INET6 if ":" in _addresses(host)[0] else socket.AF_INET
    last = min(port + PORTS_TRIED, 65535) if or_next else port
    for candidate in range(port, last + 1):
        if (opened := _try_port(family, host, candidate)) is not None:
            return opened
    raise ListenError(
        "port_taken",
        f"Port {port} on {host} is used by another program. Stop that program, choose "
        "another port with --port NUMBER or TTS_PORT, or use --port auto to take the next "
        "free port",
    )


def url_of(listening: socket.socket, allowed_hosts: Collection[str]) -> str:
    """Return the address to type into a browser, with a name that the site accepts."""
    address, port = listening.getsockname()[:2]
    if ipaddress.ip_address(address).is_loopback:
        name = f"[{address}]" if ":" in address else address
    else:
        known = [host.lstrip(".") for host in allowed_hosts if host != "*"]
        name = known[0] if known else socket.gethostname()
    return f"http://{name}:{port}"


def near_url_of(listening: socket.socket) -> str:
    """Return the address by which this machine itself reaches the socket."""
    address, port = listening.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    return f"http://{f'[{reachable}]' if ':' in reachable else reachable}:{port}"


def _addresses(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ListenError(
            "host_unknown", f"{host!r} is not an address of this machine: {error.strerror}"
        ) from error
    return [str(entry[4][0]) for entry in found]


def _try_port(family: socket.AddressFamily, host: str, port: int) -> socket.socket | None:
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
        opened.listen(BACKLOG)
    except OSError as error:
        opened.close()
        if error.errno == errno.EADDRINUSE:
            return None
        code = "port_forbidden" if error.errno == errno.EACCES else "address_unusable"
        raise ListenError(code, f"Cannot listen on {host} port {port}: {error.strerror}") from error
    return opened


def main() -> None:
    import uvicorn  # of the server's process alone

    descriptor, grace_seconds = int(sys.argv[1]), int(sys.argv[2])
    # Static files come from the packages; this folder is there only for who collects them.
    warnings.filterwarnings("ignore", message="No directory at", category=UserWarning)
    config = uvicorn.Config(
        "ttsweb.asgi:application",
        lifespan="off",  # Django has none
        log_config=None,  # the handlers of ttsweb.settings
        access_log=False,  # addresses may hold what must not stand in a log
        server_header=False,
        proxy_headers=False,  # the peer is who connects; `client_address` knows what a proxy says
        timeout_graceful_shutdown=grace_seconds,
    )
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=descriptor)])


if __name__ == "__main__":
    main()
