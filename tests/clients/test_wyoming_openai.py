"""wyoming_openai: it asks what server it has found, lists its voices and streams WAV files."""

from __future__ import annotations

import io
import wave

from tests.clients.conftest import Serving
from tests.clients.replay import KEY, TEXT, Sent, bare_samples, ignored_in, is_speech

PROBES = {
    "accept": "*/*",
    "accept-encoding": "gzip, deflate, br",
    "user-agent": "python-httpx/0.28.1",
}
SPEECH = {
    "accept": "application/octet-stream",
    "accept-encoding": "gzip, deflate, br",
    "authorization": f"Bearer {KEY}",
    "content-type": "application/json",
    "user-agent": "AsyncOpenAI/Python 1.109.1",
    "x-stainless-arch": "x64",
    "x-stainless-async": "async:asyncio",
    "x-stainless-lang": "python",
    "x-stainless-os": "Linux",
    "x-stainless-package-version": "1.109.1",
    "x-stainless-raw-response": "stream",
    "x-stainless-read-timeout": "600",
    "x-stainless-retry-count": "0",
    "x-stainless-runtime": "CPython",
    "x-stainless-runtime-version": "3.12.11",
}


def test_it_is_taken_for_kokoro_whose_voices_are_listed(serving: Serving) -> None:
    """Not for LocalAI, and not for Speaches, whose models it would ask for."""
    assert serving.replay(Sent("GET", "/v1/readyz", PROBES)).status_code == 404
    assert serving.replay(Sent("GET", "/health", PROBES)).text != "OK"
    assert serving.replay(Sent("GET", "/v1/test", PROBES)).json() == {"status": "ok"}


def test_voices_are_listed_without_a_key(serving: Serving) -> None:
    voices = serving.replay(Sent("GET", "/v1/audio/voices", PROBES)).json()["voices"]

    names = [one if isinstance(one, str) else one.get("id") or one["name"] for one in voices]
    assert "Ada" in names


def test_speech_is_a_wav_whose_head_is_read_first(serving: Serving) -> None:
    body = {
        "input": TEXT,
        "model": "gpt-4o-mini-tts",
        "voice": "alloy",
        "response_format": "wav",
        "speed": 1.0,
        "instructions": "Calm.",
    }
    answer = serving.replay(Sent("POST", "/v1/audio/speech", SPEECH, body))

    assert answer.status_code == 200
    with wave.open(io.BytesIO(answer.content)) as opened:
        assert (opened.getnchannels(), opened.getsampwidth()) == (1, 2)
        rate = opened.getframerate()
    assert is_speech(bare_samples(answer.content[44:]), rate)
    assert "speed" not in ignored_in(answer)
