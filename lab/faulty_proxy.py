"""Stand between clients and a server over TCP, and do to them what networks and servers do.

`fault` is one of: "" (nothing), "refuse" (a connection ends at once), "hang" (nobody answers until
the fault is over), "busy" (503 to each request), "lost" (a request arrives, its answer does not),
"cut" (an answer ends in its middle), "slow" (each part of an answer comes late).
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

CUT_BYTES = 700  # of an answer, its head among them
SLOW_SECONDS = 0.5
_BUSY = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)


class FaultyProxy:
    """Pass bytes on between connections to `url` and the server at `target`, an http:// address."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._times = 0
        self._target = (str(parts.hostname), int(parts.port or 80))
        self.fault, self.num_faults, self._over = "", 0, threading.Event()
        self._ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._ended.set()
        self._over.set()
        self._listener.close()

    @contextmanager
    def failing(self, fault: str, *, times: int = 0) -> Iterator[None]:
        """Do this to every connection that is made in a block, or to so many."""
        self.fault, self.num_faults, self._over = fault, 0, threading.Event()
        self._times = times
        try:
            yield
        finally:
            self.fault = ""
            self._over.set()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            fault = "" if self._times and self.num_faults >= self._times else self.fault
            self.num_faults += bool(fault)
            threading.Thread(target=self._serve, args=(client, fault), daemon=True).start()

    def _serve(self, client: socket.socket, fault: str) -> None:
        with client, suppress(OSError):
            if fault == "refuse":
                return
            if fault == "hang":
                self._over.wait()
                return
            if fault == "busy":
                client.recv(1 << 16)
                client.sendall(_BUSY)
                return
            with socket.create_connection(self._target) as server:
                there = threading.Thread(target=_pass_on, args=(client, server), daemon=True)
                there.start()
                self._answer(server, client, fault)
                there.join()

    def _answer(self, server: socket.socket, client: socket.socket, fault: str) -> None:
        left = {"cut": CUT_BYTES, "lost": 0}.get(fault)
        while part := server.recv(1 << 16):
            if fault == "slow":
                self._ended.wait(SLOW_SECONDS)
            if left is not None:
                part, left = part[:left], max(0, left - len(part))
            client.sendall(part)
            if left == 0:
                break
        client.shutdown(socket.SHUT_RDWR)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(1 << 16):
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)
