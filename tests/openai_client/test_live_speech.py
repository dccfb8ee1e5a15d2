"""The official client hears the beginning of a text while the rest of it is rendered."""

from __future__ import annotations

from typing import Any, Literal

import httpx
import numpy as np
import openai
import pytest

from tests.openai_client.conftest import Serving

HEAD_BYTES = 44


def text_of(start: int) -> str:
    """Return a text that no other test has spoken, of segments enough to be looked at meanwhile."""
    return "\n\n".join(
        f"The lamp of house number {number} was lit long before the rain came down."
        for number in range(start, start + 50)
    )


def get(serving: Serving, path: str) -> Any:
    """Ask our own API with the client's key."""
    headers = {"Authorization": f"Bearer {serving.key}"}
    return httpx.get(f"{serving.url}{path}", headers=headers, timeout=60)


@pytest.mark.parametrize(
    ("form", "start"), [pytest.param("wav", 100, marks=pytest.mark.thorough), ("pcm", 200)]
)
def test_streaming_client_hears_the_beginning_while_the_job_runs(
    serving: Serving, client: openai.OpenAI, form: Literal["wav", "pcm"], start: int
) -> None:
    with client.audio.speech.with_streaming_response.create(
        model="tts-1", voice="Ada", input=text_of(start), response_format=form
    ) as answer:
        job_id = answer.headers["tts-job-id"]
        parts = answer.iter_bytes(4096)
        first = next(parts)
        status = get(serving, f"/api/v1/jobs/{job_id}").json()["status"]
        body = first + b"".join(parts)

    assert status == "running"
    assert answer.headers["content-type"] == f"audio/{form}"
    job = get(serving, f"/api/v1/jobs/{job_id}?wait=60").json()
    assert job["status"] == "succeeded"
    samples = np.frombuffer(body[HEAD_BYTES if form == "wav" else 0 :], dtype="<i2")
    rate = 44_100 if form == "wav" else 24_000
    assert len(samples) / rate == pytest.approx(job["audio_seconds"], abs=0.01)
    assert np.abs(samples).max() > 1000
    file = get(serving, f"/api/v1/jobs/{job_id}/audio").content
    whole = np.frombuffer(file[HEAD_BYTES if form == "wav" else 0 :], dtype="<i2")
    if form == "wav":
        assert np.abs(samples.astype(int) - whole).max() <= 1
    else:  # its file is resampled in one piece, and not take by take, each of whole samples
        length = min(len(samples), len(whole), 20 * rate)
        assert np.corrcoef(samples[:length], whole[:length])[0, 1] > 0.99


def test_same_text_without_streaming_is_a_whole_file(
    serving: Serving, client: openai.OpenAI
) -> None:
    answer = client.audio.speech.create(
        model="tts-1", voice="Ada", input=text_of(300)[:150], response_format="wav"
    )

    content = answer.content
    assert int.from_bytes(content[4:8], "little") == len(content) - 8


def test_request_that_names_its_stream_format_is_streamed_too(serving: Serving) -> None:
    headers = {"Authorization": f"Bearer {serving.key}"}
    body = {
        "model": "tts-1",
        "voice": "Ada",
        "input": text_of(400),
        "response_format": "wav",
        "stream_format": "audio",
    }
    url = f"{serving.url}/v1/audio/speech"
    with httpx.stream("POST", url, json=body, headers=headers, timeout=90) as answer:
        parts = answer.iter_raw()
        head = next(parts)
        status = get(serving, f"/api/v1/jobs/{answer.headers['tts-job-id']}").json()["status"]
        rest = b"".join(parts)

    assert head[4:8] == b"\xff" * 4
    assert len(rest) > 2 * 44_100
    assert status == "running"
