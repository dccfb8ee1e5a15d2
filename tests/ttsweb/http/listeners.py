"""Servers for tests of requests that leave: they note what arrives and answer as they are told."""

from __future__ import annotations

import contextlib
import http.server
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Arrived:
    """A request that arrived; the names of the headers are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Listener:
    """A server on this machine; `answers` are given in turn, the last one for ever.

    Each answer is a status, headers and a body, or a function that gets the connection.
    """

    port: int
    answers: list[tuple[int, dict[str, str], bytes] | Callable[[socket.socket], object]] = field(
        default_factory=lambda: [(200, {}, b"")]
    )
    arrived: list[Arrived] = field(default_factory=list)
    has_arrived: threading.Condition = field(default_factory=threading.Condition)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def wait_arrived(self, count: int, *, seconds: float = 60.0) -> list[Arrived]:
        with self.has_arrived:
            assert self.has_arrived.wait_for(lambda: len(self.arrived) >= count, seconds), (
                f"{len(self.arrived)} of {count} requests arrived"
            )
            return list(self.arrived)


@contextlib.contextmanager
def listening(context: ssl.SSLContext | None = None) -> Iterator[Listener]:
    """Run a server on a free port of 127.0.0.1, with TLS where a context is given."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            with listener.has_arrived:
                place = min(len(listener.arrived), len(listener.answers) - 1)
                answer = listener.answers[place]
                listener.arrived.append(Arrived(self.command, self.path, headers, body))
                listener.has_arrived.notify_all()
            if callable(answer):
                with contextlib.suppress(OSError):
                    answer(self.connection)
                return
            status, extra, content = answer
            self.send_response(status)
            for name, value in extra.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(content)

        do_GET = do_POST = _serve

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Say nothing of a client that went."""

    with Server(("127.0.0.1", 0), Handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        listener = Listener(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield listener
        finally:
            server.shutdown()
            thread.join()
