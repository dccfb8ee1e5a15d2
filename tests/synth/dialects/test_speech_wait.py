"""Requests for speech wait outside of the application, and then get what it says of the job."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Collection
from typing import Any

import httpx
import pytest

from synth.api.jobs import wait as job_wait
from synth.api.jobs.wait import JobWait
from synth.dialects.speech_wait import THEN_HEADER, SpeechWait

URL = "/v1/audio/speech"
JOB = uuid.UUID("7b6b1de4-6f2c-4a3c-9e0a-111111111111")


class Application:
    """Answer like the views: an error with the header, then what has become of the job."""

    def __init__(self, *, wait: str = "5", has_ended: bool = False) -> None:
        self.wait, self.has_ended = wait, has_ended
        self.requests: list[tuple[str, str, bytes, dict[str, str]]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        target = f"{scope['path']}?{scope['query_string'].decode()}"
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.requests.append((scope["method"], target, body, headers))
        answers = []
        is_speech = scope["path"].rstrip("/").endswith("/audio/speech")
        if scope["method"] == "POST":
            answers.append((b"x-tts-voice", b"Ada"))
        if scope["method"] == "POST" and not self.has_ended and is_speech:
            then = f"{self.wait} {JOB} {URL}/{JOB}?stream_format=sse"
            answers.append((THEN_HEADER.lower().encode(), then.encode()))
        status = 200 if self.has_ended else 503 if len(answers) > 1 else 504
        await send({"type": "http.response.start", "status": status, "headers": answers})
        await send({"type": "http.response.body", "body": json.dumps(self.has_ended).encode()})

    def unfinished(self, job_ids: Collection[uuid.UUID]) -> set[uuid.UUID]:
        return set() if self.has_ended else set(job_ids)

    def end(self) -> None:
        self.has_ended = True


@pytest.fixture(autouse=True)
def quick_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often."""
    monkeypatch.setattr(job_wait, "POLL_SECONDS", 0.02)


def ask(
    application: Application,
    meanwhile: Callable[[], None] = lambda: None,
    *,
    count: int = 1,
    max_waiters: int = 10,
    address: str = URL,
) -> list[httpx.Response]:
    """Ask so often at once, do `meanwhile` after a moment; return the answers."""
    waiting = JobWait(application, max_waiters=max_waiters, unfinished=application.unfinished)
    wrapped = SpeechWait(waiting)

    async def run() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=wrapped)
        headers = {"Authorization": "Bearer k", "Range": "bytes=0-1", "If-None-Match": '"x"'}
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            asked = [
                asyncio.create_task(client.post(address, json={"input": "x"}, headers=headers))
                for _ in range(count)
            ]
            await asyncio.sleep(0.1)
            meanwhile()
            return list(await asyncio.gather(*asked))

    answers = asyncio.run(run())
    assert all(THEN_HEADER not in answer.headers for answer in answers)
    return answers


def test_answer_is_what_is_said_of_the_job_once_it_has_ended() -> None:
    application = Application()

    (answer,) = ask(application, application.end)

    first, second = application.requests
    assert (answer.status_code, answer.json()) == (200, True)
    assert first[:3] == ("POST", f"{URL}?", b'{"input":"x"}')
    assert second[:3] == ("GET", f"{URL}/{JOB}?stream_format=sse", b"")
    headers = second[3]  # the key, and nothing that asks for less than the whole file
    assert headers["authorization"] == "Bearer k"
    assert not {"range", "if-none-match", "content-type", "content-length"} & set(headers)


@pytest.mark.parametrize(
    ("given", "address", "status", "requests"),
    [
        pytest.param({"has_ended": True}, URL, 200, 1, id="job that has ended"),
        pytest.param({"wait": "0.05"}, URL, 504, 2, id="time that is over"),
        pytest.param({}, "/v1/audio/voices", 504, 1, id="another address"),
    ],
)
def test_what_is_not_waited_for_gets_what_is_said_then(
    given: dict[str, Any], address: str, status: int, requests: int
) -> None:
    application = Application(**given)

    (answer,) = ask(application, address=address)

    assert (answer.status_code, len(application.requests)) == (status, requests)


@pytest.mark.parametrize(
    "address",
    [
        f"{URL}/", "/openai/v1/audio/speech",
        "/openai/deployments/tts/audio/speech?api-version=2025-04-01-preview",
    ],
)  # fmt: skip
def test_every_address_of_speech_is_waited_at(address: str) -> None:
    application = Application()
    (answer,) = ask(application, application.end, address=address)
    assert (answer.status_code, len(application.requests)) == (200, 2)


def test_what_was_said_of_the_request_stands_once_in_the_last_answer() -> None:
    for application in (Application(), Application(has_ended=True), Application(wait="0.05")):
        (answer,) = ask(application, application.end)
        assert answer.headers.get_list("X-TTS-Voice") == ["Ada"]
    answers = ask(Application(), count=2, max_waiters=0)
    assert [one.headers.get_list("X-TTS-Voice") for one in answers] == [["Ada"]] * 2


def test_request_for_which_there_is_no_room_gets_the_first_answer() -> None:
    application = Application()

    answers = ask(application, application.end, count=3, max_waiters=2)

    assert sorted(answer.status_code for answer in answers) == [200, 200, 503]


def test_client_that_has_gone_is_asked_for_nothing_more() -> None:
    application = Application()
    wrapped = SpeechWait(JobWait(application, max_waiters=5, unfinished=application.unfinished))
    messages = [{"type": "http.request", "body": b"{}"}, {"type": "http.disconnect"}]
    sent: list[Any] = []

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": URL, "query_string": b"", "headers": []}
    asyncio.run(wrapped(scope, receive, send))

    assert sent == []
    assert len(application.requests) == 1
