"""LiveKit's plugins openai and fishaudio: `synthesize` and `stream`, as agents call them."""

from __future__ import annotations

from typing import Any

import ormsgpack
import pytest

from tests.clients.conftest import Serving
from tests.clients.official import run_python_client
from tests.clients.replay import KEY, TEXT, Sent, check_file, ignored_in

FISH = {
    "Accept": "*/*",
    "Accept-Encoding": "gzip, deflate",
    "Authorization": f"Bearer {KEY}",
    "Content-Type": "application/msgpack",
    "User-Agent": "Python/3.12 aiohttp/3.13.2",
    "model": "s2.1-pro",
}
FISH_BODY: dict[str, Any] = {
    "text": TEXT,
    "reference_id": "933563129e564b19a115bedd57b7406a",  # the plugin's own
    "format": "wav",
    "sample_rate": 24_000,
    "chunk_length": 100,
    "mp3_bitrate": 64,
    "opus_bitrate": 64_000,
    "references": [],
    "normalize": True,
    "latency": "balanced",
    "prosody": None,
    "top_p": 0.7,
    "temperature": 0.7,
    "features": ["quality-guard"],
}

PROGRAM = """
import asyncio
import aiohttp
from livekit.plugins import fishaudio, openai

async def heard(tts):
    frames = []
    async with tts.synthesize(given["text"]) as stream:
        async for event in stream:
            frames.append(event.frame)
    return {
        "seconds": sum(frame.duration for frame in frames),
        "rate": frames[0].sample_rate,
        "loudest": max(max(map(abs, frame.data), default=0) for frame in frames),
    }

async def main():
    found = {}
    async with aiohttp.ClientSession() as session:
        common = {"api_key": given["key"], "base_url": given["url"], "http_session": session}
        for form in ("wav", "mp3", "pcm", "opus"):
            found[form] = await heard(fishaudio.TTS(output_format=form, **common))
    common = {"api_key": given["key"], "base_url": given["url"] + "/v1"}
    for model in ("tts-1", "gpt-4o-mini-tts"):
        tts = openai.TTS(model=model, instructions="Warm.", **common)
        tts.prewarm()
        found[model] = await heard(tts)
        await tts.aclose()
    print(json.dumps(found))

asyncio.run(main())
"""

STREAMING = """
import asyncio, aiohttp
from livekit.plugins import fishaudio

async def main():
    async with aiohttp.ClientSession() as session:
        speech = fishaudio.TTS(
            api_key=given["key"], base_url=given["url"], voice_id="Ada",
            output_format=given["form"], http_session=session,
        )
        seconds, frames = 0.0, 0
        async with speech.stream() as stream:
            for piece in given["pieces"]:
                stream.push_text(piece)
            stream.end_input()
            async for event in stream:
                seconds += event.frame.duration
                frames += 1
        await speech.aclose()
    print(json.dumps({"seconds": seconds, "frames": frames}))

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("form", "rate", "codec", "content_type"),
    [
        ("wav", 24_000, "pcm_s16le", "audio/wav"),
        ("mp3", 32_000, "mp3float", "audio/mpeg"),
        ("opus", 48_000, "opus", "audio/ogg"),
    ],
)
def test_fishaudio_sends_message_pack(
    serving: Serving, form: str, rate: int, codec: str, content_type: str
) -> None:
    body = ormsgpack.packb(FISH_BODY | {"format": form, "sample_rate": rate})
    answer = serving.replay(Sent("POST", "/v1/tts", FISH, body))

    check_file(answer, content_type, codec)
    assert ignored_in(answer) == {"chunk_length", "features"}


def test_openai_asks_for_events_of_its_newer_model(serving: Serving) -> None:
    headers = {
        "authorization": f"Bearer {KEY}",
        "content-type": "application/json",
        "accept": "application/octet-stream",
        "user-agent": "AsyncOpenAI/Python 2.8.1",
        "x-stainless-raw-response": "stream",
    }
    body = {
        "input": TEXT,
        "model": "gpt-4o-mini-tts",
        "voice": "ash",
        "instructions": "Warm.",
        "response_format": "mp3",
        "speed": 1.0,
        "stream_format": "sse",
    }
    answer = serving.replay(Sent("POST", "/v1/audio/speech", headers, body))

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert '"speech.audio.delta"' in answer.text
    assert '"speech.audio.done"' in answer.text


@pytest.mark.clients
def test_the_plugins_themselves_speak(serving: Serving) -> None:
    found = run_python_client(PROGRAM, url=serving.url, key=serving.key, text=TEXT)

    assert set(found) == {"wav", "mp3", "pcm", "opus", "tts-1", "gpt-4o-mini-tts"}
    assert found["mp3"]["rate"] == 32_000 and found["pcm"]["rate"] == 24_000
    for heard in found.values():
        assert 0.3 < heard["seconds"] < 5
        assert heard["loudest"] > 1000


@pytest.mark.clients
@pytest.mark.parametrize("form", ["wav", "pcm", "mp3"])
def test_fishaudio_is_heard_while_text_is_pushed(form: str, serving: Serving) -> None:
    pieces = ["The plugin ", f"speaks {form} now. ", "It says a second ", "sentence too."]
    heard = run_python_client(STREAMING, url=serving.url, key=serving.key, form=form, pieces=pieces)
    assert heard["frames"] > 1 and heard["seconds"] > 1.5
