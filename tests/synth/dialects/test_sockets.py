"""Sockets are opened while there is room, refused as their routes say, and closed when idle."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from typing import Any, cast

import pytest

from synth.dialects import socket_sessions
from synth.dialects.socket_sessions import SpeechSockets
from synth.live.pipeline import LiveOptions
from synth.live.streams import LivePlayer

PATH = "/v1/audio/speech/stream"
JOB = uuid.UUID(int=5)


class Client:
    """One end of a connection: what it says, and what it was sent."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for message in ({"type": "websocket.connect"}, *messages):
            self.said.put_nowait(message)
        self.sent: list[Any] = []

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    def types(self) -> list[str]:
        return [message["type"].removeprefix("websocket.") for message in self.sent]


def django(status: int) -> Callable[..., Any]:
    """Return an application that answers every request with a status and an error."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        body = {"error": {"code": "some_code", "message": "A sentence."}}
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(body).encode()})

    return answer


async def connect(sockets: SpeechSockets, client: Client, *, path: str = PATH, **more: Any) -> None:
    scope = {"type": "websocket", "path": path, "headers": [], "scheme": "ws", **more}
    await sockets(scope, client.said.get, client.send)


def sockets_of(status: int, *, max_sessions: int = 1) -> SpeechSockets:
    app = django(status)
    return SpeechSockets(app, app, cast(LivePlayer, None), max_sessions=max_sessions)


def test_idle_connection_is_told_so_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_sessions, "IDLE_SECONDS", 0.01)
    client = Client()

    asyncio.run(connect(sockets_of(426), client))

    assert client.types() == ["accept", "send", "close"]
    assert json.loads(client.sent[1]["text"])["code"] == "idle_too_long"
    assert client.sent[2]["code"] == 1008


def test_connection_beyond_the_limit_is_refused_until_another_ends() -> None:
    async def run() -> list[list[str]]:
        sockets, first = sockets_of(426), Client()
        extensions: dict[str, Any] = {"websocket.http.response": {}}
        serving = asyncio.create_task(connect(sockets, first))
        while not first.sent:
            await asyncio.sleep(0)
        second, third = Client(), Client({"type": "websocket.disconnect"})
        await connect(sockets, second, extensions=extensions)
        assert json.loads(second.sent[1]["body"])["error"]["code"] == "too_many_sessions"
        first.said.put_nowait({"type": "websocket.disconnect"})
        await serving
        await connect(sockets, third)
        return [second.types(), third.types()]

    refused = ["http.response.start", "http.response.body"]
    assert asyncio.run(run()) == [refused, ["accept"]]


@pytest.mark.parametrize("extensions", [{}, {"websocket.http.response": {}}])
def test_handshake_gets_the_answer_of_its_route(extensions: dict[str, Any]) -> None:
    client = Client()

    asyncio.run(connect(sockets_of(401), client, extensions=extensions))

    if extensions:
        assert client.sent[0]["status"] == 401 and b"some_code" in client.sent[1]["body"]
    else:
        assert client.sent == [{"type": "websocket.close", "code": 1008}]


def test_client_that_sends_nothing_readable_is_sent_away() -> None:
    client = Client(*({"type": "websocket.receive", "text": "{"} for _ in range(20)))

    asyncio.run(connect(sockets_of(426), client))

    assert client.types() == ["accept", *["send"] * socket_sessions.MAX_BAD_MESSAGES, "close"]
    assert client.sent[-1]["code"] == 1008


def test_refused_sentence_is_told_with_the_route_s_reason() -> None:
    client = Client(
        {"type": "websocket.receive", "text": json.dumps({"type": "input.text", "text": "Go on."})},
        {"type": "websocket.receive", "text": json.dumps({"type": "input.done"})},
    )

    async def run() -> None:
        serving = asyncio.create_task(connect(sockets_of(426), client))
        while "send" not in client.types():
            await asyncio.sleep(0)
        client.said.put_nowait({"type": "websocket.disconnect"})
        await serving

    asyncio.run(run())

    expected = {"type": "error", "code": "some_code", "message": "A sentence."}
    assert json.loads(client.sent[1]["text"]) == expected


class Orders:
    """Make a job of each order once it is let go, and note what is asked of jobs."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.asked: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        status, headers = 426, list[tuple[bytes, bytes]]()
        self.asked.append(f"{scope['method']} {scope['path']}")
        if scope["method"] == "POST":
            status = 200
            await self.may_answer.wait()
        if scope["path"] == "/v1/audio/speech":
            options = LiveOptions("wav").to_header()
            headers = [(b"tts-job-id", str(JOB).encode()), (b"tts-live", options.encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})


def test_job_that_is_made_while_its_client_leaves_is_cancelled() -> None:
    async def run() -> list[str]:
        orders = Orders()
        sockets = SpeechSockets(orders, orders, cast(LivePlayer, None), max_sessions=1)
        text = json.dumps({"type": "input.text", "text": "Somebody leaves now. "})
        client = Client({"type": "websocket.receive", "text": text})
        serving = asyncio.create_task(connect(sockets, client))
        while len(orders.asked) < 2:  # the handshake and the order
            await asyncio.sleep(0)
        client.said.put_nowait({"type": "websocket.disconnect"})
        for _ in range(20):
            await asyncio.sleep(0)
        orders.may_answer.set()
        await serving
        return orders.asked

    expected = [f"GET {PATH}", "POST /v1/audio/speech", f"POST /api/v1/jobs/{JOB}/cancel"]
    assert asyncio.run(run()) == expected
