"""Text that is still being written is spoken over WebSockets, in both protocols."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import av
import httpx
import numpy as np
import ormsgpack
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.clients.conftest import Serving

WAIT_SECONDS = 120
PIECES = (
    "The lamp was lit ",
    "long before the rain. Then the ",
    "old dog came home. It was ",
    "wet.",
)


def address(serving: Serving, path: str) -> str:
    return serving.url.replace("http", "ws", 1) + path


@pytest.fixture
def json_socket(serving: Serving) -> Iterator[ClientConnection]:
    """A connection in the protocol of JSON messages."""
    headers = {"Authorization": f"Bearer {serving.key}"}
    with connect(address(serving, "/v1/audio/speech/stream"), additional_headers=headers) as opened:
        yield opened


@pytest.fixture
def fish_socket(serving: Serving) -> Iterator[ClientConnection]:
    """A connection in the protocol of MessagePack."""
    headers = {"Authorization": f"Bearer {serving.key}", "model": "s2.1-pro"}
    with connect(address(serving, "/v1/tts/live"), additional_headers=headers) as opened:
        yield opened


def say(socket: ClientConnection, kind: str, **values: object) -> None:
    socket.send(json.dumps({"type": kind, **values}))


def hear(socket: ClientConnection, *until: str) -> list[dict[str, Any] | bytes]:
    """Return the messages up to one of a type in `until`."""
    heard: list[dict[str, Any] | bytes] = []
    while not (heard and isinstance(heard[-1], dict) and heard[-1]["type"] in until):
        message = socket.recv(WAIT_SECONDS)
        heard.append(message if isinstance(message, bytes) else json.loads(message))
    return heard


def shown(heard: list[dict[str, Any] | bytes]) -> list[dict[str, Any]]:
    return [one for one in heard if isinstance(one, dict)]


def pack(socket: ClientConnection, event: str, **values: object) -> None:
    socket.send(ormsgpack.packb({"event": event, **values}))


def hear_packed(socket: ClientConnection) -> tuple[bytes, dict[str, Any]]:
    """Return the audio of an utterance, and the event that ends it."""
    audio = b""
    while True:
        message = socket.recv(WAIT_SECONDS)
        assert isinstance(message, bytes)
        event = ormsgpack.unpackb(message)
        if event["event"] == "finish":
            return audio, event
        audio += event["audio"]


def seconds_of(audio: bytes, form: str) -> float:
    with av.open(io.BytesIO(audio), "r", format="ogg" if form == "opus" else form) as opened:
        samples = [frame.samples for frame in opened.decode(audio=0)]
        return sum(samples) / opened.streams.audio[0].rate


def jobs_of(serving: Serving) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = serving.get("/jobs?limit=200").json()["results"]
    return found


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_sentence_is_heard_before_the_next_is_written(json_socket: ClientConnection) -> None:
    say(json_socket, "session.config", voice="Ada", response_format="pcm")
    for piece in PIECES[:2]:
        say(json_socket, "input.text", text=piece)

    first = hear(json_socket, "audio.done")
    for piece in PIECES[2:]:
        say(json_socket, "input.text", text=piece)
    say(json_socket, "input.done")
    rest = hear(json_socket, "session.done")

    begin = {"type": "audio.start", "utterance_index": 0, "format": "pcm", "sample_rate": 24_000}
    assert shown(first)[0] | begin == shown(first)[0]
    texts = [one["sentence_text"] for one in shown(first + rest) if one["type"] == "audio.start"]
    assert texts == ["The lamp was lit long before the rain.", "Then the old dog came home.",
                     "It was wet."]  # fmt: skip
    assert shown(first)[0]["voice"] == "Ada"
    samples = np.frombuffer(b"".join(one for one in first if isinstance(one, bytes)), dtype="<i2")
    assert shown(first)[-1]["total_bytes"] == samples.nbytes and np.abs(samples).max() > 1000
    assert shown(rest)[-1] == {"type": "session.done", "utterance_index": 0, "total_sentences": 3}


def test_connection_speaks_one_utterance_after_the_other(json_socket: ClientConnection) -> None:
    say(json_socket, "session.config", voice="Ada", response_format="mp3", speed=1.5)
    for number, text in enumerate(("A boat came in at noon.", "Nobody was at the harbour.")):
        say(json_socket, "input.text", text=text)
        say(json_socket, "input.done")
        heard = hear(json_socket, "session.done")
        assert shown(heard)[-1]["utterance_index"] == number
        audio = b"".join(one for one in heard if isinstance(one, bytes))
        assert seconds_of(audio, "mp3") > 0.5


@pytest.mark.parametrize("form", ["mp3", "opus", "wav", "pcm"])
def test_fish_protocol_sends_one_stream_from_start_to_stop(
    form: str, fish_socket: ClientConnection
) -> None:
    request = {"text": "", "reference_id": "Ada", "format": form, "latency": "balanced"}
    for turn in ("first", "second"):  # clients keep the connection
        pack(fish_socket, "start", request=request)
        pack(fish_socket, "text", text=f"The {turn} {form} boat came in at noon. ")
        pack(fish_socket, "flush")
        pack(fish_socket, "text", text="Nobody was at the harbour")
        pack(fish_socket, "stop")
        audio, end = hear_packed(fish_socket)
        assert end == {"event": "finish", "reason": "stop"}
        seconds = len(audio) / 2 / 44_100 if form == "pcm" else seconds_of(audio, form)
        assert seconds > 1.5
        if form == "wav":
            assert audio.count(b"RIFF") == 1


def test_who_cuts_in_hears_nothing_more_and_leaves_no_job(
    serving: Serving, json_socket: ClientConnection
) -> None:
    say(json_socket, "session.config", voice="Ada")
    for number in range(30):
        say(json_socket, "input.text", text=f"Sentence {number} is about a very long road. ")
    hear(json_socket, "audio.start")
    say(json_socket, "input.cancel")
    hear(json_socket, "session.cancelled")
    say(json_socket, "input.text", text="Now something else is said. ")
    say(json_socket, "input.done")

    heard = hear(json_socket, "session.done")

    assert [one["sentence_text"] for one in shown(heard) if one["type"] == "audio.start"] == [
        "Now something else is said."
    ]
    states = {job["status"] for job in jobs_of(serving) if "very long road" in job["text_start"]}
    assert states <= {"cancelled", "succeeded"} and "cancelled" in states


def test_who_leaves_frees_the_place_and_his_jobs(serving: Serving) -> None:
    headers = {"Authorization": f"Bearer {serving.key}"}
    path = "/v1/audio/speech/stream"
    with connect(address(serving, path), additional_headers=headers) as opened:
        say(opened, "session.config", voice="Ada")
        for number in range(30):
            say(opened, "input.text", text=f"Sentence {number} is about an empty harbour. ")
        hear(opened, "audio.start")

    def unfinished() -> list[str]:
        mine = [job for job in jobs_of(serving) if "empty harbour" in job["text_start"]]
        return [job["id"] for job in mine if job["status"] not in ("cancelled", "succeeded")]

    wait_until(lambda: not unfinished())
    segments = serving.get("/stats").json()["queue"]["segments"]
    over = ("done", "cancelled", "failed")
    assert {name: count for name, count in segments.items() if count and name not in over} == {}


def test_what_is_refused_says_why_and_the_connection_goes_on(
    json_socket: ClientConnection,
) -> None:
    json_socket.send("{")
    [error] = shown(hear(json_socket, "error"))
    assert error["code"] == "message_not_json"
    for message, code in (
        ({"type": "input.speak"}, "message_type_unknown"),
        ({"type": "input.text", "text": 7}, "text_invalid"),
        ({"type": "session.config", "response_format": "mid"}, "format_unknown"),
    ):
        json_socket.send(json.dumps(message))
        [error] = shown(hear(json_socket, "error"))
        assert error["code"] == code, message
    say(json_socket, "session.config", voice="Adah")
    say(json_socket, "input.text", text="Nobody has this voice.")
    say(json_socket, "input.done")
    [error] = shown(hear(json_socket, "error"))
    assert error["code"] == "voice_not_found" and "Ada" in error["message"]
    say(json_socket, "session.config", voice="Ada")
    say(json_socket, "input.text", text="Somebody has this voice.")
    say(json_socket, "input.done")
    assert shown(hear(json_socket, "session.done"))[-1]["total_sentences"] == 1


def test_text_that_comes_too_fast_and_binary_messages_end_the_connection(
    serving: Serving,
) -> None:
    headers = {"Authorization": f"Bearer {serving.key}"}
    for content, code, closed in (
        (json.dumps({"type": "input.text", "text": "word " * 6000}), "text_too_fast", 1009),
        (b"\x01\x02", "message_not_text", 1003),
    ):
        path = "/v1/audio/speech/stream"
        with connect(address(serving, path), additional_headers=headers) as opened:
            say(opened, "session.config", voice="Ada")
            opened.send(content)
            error = hear(opened, "error")[-1]
            assert isinstance(error, dict) and error["code"] == code
            with pytest.raises(ConnectionClosed) as ended:
                while True:
                    opened.recv(WAIT_SECONDS)
        assert ended.value.rcvd is not None and ended.value.rcvd.code == closed, code


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [("/v1/audio/speech/stream", "tts_wrong", 401), ("/v1/tts/live", "", 401),
     ("/v1/other", "", 404)],
)  # fmt: skip
def test_handshake_is_refused_with_a_reason(
    path: str, key: str, status: int, serving: Serving
) -> None:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with pytest.raises(InvalidStatus) as refused:
        connect(address(serving, path), additional_headers=headers).close()
    answer = refused.value.response
    assert answer.status_code == status
    assert json.loads(answer.body or b"")


def test_plain_request_at_a_socket_s_address_is_told_so(serving: Serving) -> None:
    headers = {"Authorization": f"Bearer {serving.key}"}
    answer = httpx.get(f"{serving.url}/v1/audio/speech/stream", headers=headers)
    assert answer.status_code == 426
    assert answer.json()["error"]["code"] == "upgrade_required"
