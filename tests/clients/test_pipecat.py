"""Pipecat's OpenAITTSService: bare samples, streamed."""

from __future__ import annotations

import pytest

from tests.clients.conftest import Serving
from tests.clients.official import run_python_client
from tests.clients.replay import KEY, TEXT, Sent, bare_samples, is_speech

HEADERS = {
    "accept": "application/octet-stream",
    "accept-encoding": "gzip, deflate, br",
    "authorization": f"Bearer {KEY}",
    "content-type": "application/json",
    "user-agent": "AsyncOpenAI/Python 2.8.1",
    "x-stainless-async": "async:asyncio",
    "x-stainless-lang": "python",
    "x-stainless-raw-response": "stream",
    "x-stainless-retry-count": "0",
}

PROGRAM = """
import asyncio
from pipecat.frames.frames import ErrorFrame, TTSAudioRawFrame
from pipecat.services.openai.tts import OpenAITTSService

async def main():
    settings = OpenAITTSService.Settings(voice="nova", instructions="Warm.")
    service = OpenAITTSService(
        api_key=given["key"], base_url=given["url"] + "/v1", settings=settings
    )
    service._sample_rate = 24000  # a pipeline's start frame sets it
    frames = [frame async for frame in service.run_tts(given["text"], "context")]
    audio = b"".join(frame.audio for frame in frames if isinstance(frame, TTSAudioRawFrame))
    errors = [frame.error for frame in frames if isinstance(frame, ErrorFrame)]
    print(json.dumps({"audio": audio.hex(), "errors": errors}))

asyncio.run(main())
"""


def test_bare_samples_are_streamed(serving: Serving) -> None:
    body = {
        "input": TEXT,
        "model": "gpt-4o-mini-tts",
        "voice": "alloy",
        "response_format": "pcm",
        "instructions": "Warm.",
    }
    answer = serving.replay(Sent("POST", "/v1/audio/speech", HEADERS, body))

    assert answer.status_code == 200
    assert is_speech(bare_samples(answer.content), 24_000)


@pytest.mark.clients
def test_the_service_itself_speaks(serving: Serving) -> None:
    found = run_python_client(PROGRAM, url=serving.url, key=serving.key, text=TEXT)

    assert not found["errors"]
    assert is_speech(bare_samples(bytes.fromhex(found["audio"])), 24_000)
