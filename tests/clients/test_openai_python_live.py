"""The official client hears the beginning of a text while the rest of it is rendered."""

from __future__ import annotations

import base64
from typing import Any, Literal

import httpx
import numpy as np
import openai
import pytest

from tests.clients.conftest import Serving
from tests.synth.audio.received import receive

Format = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]
HEAD_BYTES = 44
# An AAC frame has 64 ms at 16 kHz; a stream has up to two of them more than its sound.
PADDING_SECONDS = 0.13
NEXT = iter(range(100, 10_000, 24))


def new_text() -> str:
    """Return a text that no other test has spoken, of segments enough to be looked at meanwhile."""
    start = next(NEXT)
    return "\n\n".join(
        f"The lamp of house number {number} was lit long before the rain came down."
        for number in range(start, start + 24)
    )


def seconds_of(form: str, body: bytes) -> float:
    if form == "pcm":
        return len(body) / 2 / 24_000
    heard = receive(body)
    assert form == "wav" or heard.warnings == []
    return len(heard.samples) / heard.sample_rate


@pytest.mark.parametrize(
    ("form", "speed"),
    [
        ("mp3", 1.0),
        ("pcm", 1.0),
        ("mp3", 1.25),
        *(pytest.param(one, 1.0, marks=pytest.mark.thorough) for one in ("opus", "aac", "flac")),
        pytest.param("wav", 1.0, marks=pytest.mark.thorough),
        pytest.param("opus", 0.8, marks=pytest.mark.thorough),
    ],
)
def test_streaming_client_hears_the_beginning_while_the_job_runs(
    serving: Serving, client: openai.OpenAI, form: Format, speed: float
) -> None:
    with client.audio.speech.with_streaming_response.create(
        model="tts-1", voice="Ada", input=new_text(), response_format=form, speed=speed
    ) as answer:
        job_id = answer.headers["tts-job-id"]
        parts = answer.iter_bytes(1024)
        first = next(parts)
        status = serving.get(f"/jobs/{job_id}").json()["status"]
        body = first + b"".join(parts)
    assert status == "running"
    job = serving.get(f"/jobs/{job_id}?wait=60").json()
    assert job["status"] == "succeeded"

    file = serving.get(f"/jobs/{job_id}/audio")
    assert answer.headers["content-type"] == file.headers["content-type"]
    assert seconds_of(form, body) == pytest.approx(job["file"]["seconds"], abs=PADDING_SECONDS)
    if form in ("wav", "pcm"):
        head = HEAD_BYTES if form == "wav" else 0
        samples, whole = (
            np.frombuffer(one[head:], dtype="<i2").astype(int) for one in (body, file.content)
        )
        assert len(samples) == len(whole)
        assert np.abs(samples - whole).max() <= 1


def test_events_are_read_by_the_clients_own_stream_while_the_job_runs(
    serving: Serving, client: openai.OpenAI
) -> None:
    body = {"model": "tts-1", "voice": "Ada", "input": new_text(), "stream_format": "sse"}
    events: openai.Stream[Any] = client.post(
        "/audio/speech", body=body, cast_to=object, stream=True, stream_cls=openai.Stream[object]
    )
    first = next(events)
    job_id = events.response.headers["tts-job-id"]
    status = serving.get(f"/jobs/{job_id}").json()["status"]
    *deltas, done = [first, *events]
    assert status == "running"
    job = serving.get(f"/jobs/{job_id}?wait=60").json()

    assert {one["type"] for one in deltas} == {"speech.audio.delta"}
    assert done["type"] == "speech.audio.done"
    assert done["usage"]["input_tokens"] == len(body["input"])
    sound = b"".join(base64.b64decode(one["audio"]) for one in deltas)
    assert seconds_of("mp3", sound) == pytest.approx(job["file"]["seconds"], abs=PADDING_SECONDS)


def test_client_that_does_not_stream_gets_the_same_and_later_the_file(
    serving: Serving, client: openai.OpenAI
) -> None:
    asked: dict[str, Any] = {"model": "tts-1", "voice": "Ada", "input": new_text()[:150]}
    live = client.audio.speech.create(**asked, response_format="wav")
    job_id = live.response.headers["tts-job-id"]
    serving.get(f"/jobs/{job_id}?wait=60")

    later = client.audio.speech.create(**asked, response_format="wav")

    content = later.content
    assert live.content[4:8] == b"\xff" * 4
    assert int.from_bytes(content[4:8], "little") == len(content) - 8
    assert later.response.headers["tts-job-id"] == job_id
    assert later.response.headers["etag"]
    assert len(live.content) == len(content)


def test_job_that_fails_behind_the_beginning_ends_events_with_the_clients_own_error(
    serving: Serving, client: openai.OpenAI
) -> None:
    headers = {"Authorization": f"Bearer {serving.key}"}
    body = {"model": "tts-1", "voice": "Ada", "input": new_text(), "stream_format": "sse"}
    events: openai.Stream[Any] = client.post(
        "/audio/speech", body=body, cast_to=object, stream=True, stream_cls=openai.Stream[object]
    )
    next(events)
    job_id = events.response.headers["tts-job-id"]
    httpx.post(f"{serving.url}/api/v1/jobs/{job_id}/cancel", headers=headers, timeout=60)

    with pytest.raises(openai.APIError) as error:
        list(events)

    assert error.value.code == "segment_without_audio"
