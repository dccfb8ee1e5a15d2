"""A server that misbehaves as it is told: it gives scripted answers, breaks off, and notes all.

Its client notes its pauses in place of waiting.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from ttsweb.client import Client


@dataclass(frozen=True)
class Answer:
    """One answer; with `cut` only so many bytes of the body are sent before the connection ends."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class FaultyServer(ThreadingHTTPServer):
    """Gives the answers of `script` one after the other, the last one for ever."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: list[Answer] = [Answer()]
        self.requests: list[Request] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def next_answer(self, request: Request) -> Answer:
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyServer

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, headers, body)
        self.server.requests.append(request)
        answer = self.server.next_answer(request)
        if answer.cut is None:
            self._send(answer, answer.body)
            return
        self.close_connection = True
        if answer.cut:
            self._send(answer, answer.body[: answer.cut])

    def _send(self, answer: Answer, body: bytes) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def json_answer(found: Any, status: int = 200, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, json.dumps(found).encode(), {"Content-Type": "application/json", **named})


def problem(status: int, code: str, detail: str = "A sentence.", **headers: str) -> Answer:
    return json_answer({"status": status, "code": code, "detail": detail}, status, **headers)


class FaultyClient(Client):
    """A client of such a server."""

    def __init__(self, server: FaultyServer) -> None:
        self.server = server
        self.pauses: list[float] = []
        super().__init__(server.url, "tts_key", timeout=5, retries=3, sleep=self.pauses.append)

    @property
    def requests(self) -> list[Request]:
        return self.server.requests

    @property
    def sent(self) -> Any:
        """The JSON of the last request."""
        return json.loads(self.requests[-1].body)

    def answers(self, *script: Answer) -> None:
        """Have the server give these, the last one for ever."""
        self.server.script = list(script)


@contextmanager
def serving(kind: type[FaultyServer] = FaultyServer) -> Iterator[FaultyClient]:
    server = kind()
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        with FaultyClient(server) as client:
            yield client
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
