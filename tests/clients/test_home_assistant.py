"""Home Assistant with openai_tts: config_flow.py and openaitts_engine.py."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.conftest import Serving
from tests.clients.replay import KEY, TEXT, Sent, check_file, ignored_in

HEADERS = {
    "Accept": "*/*",
    "Accept-Encoding": "gzip, deflate, br",
    "User-Agent": "HomeAssistant-OpenAI-TTS",
    "Content-Type": "application/json",
    "Authorization": f"Bearer {KEY}",
}
KEYLESS = {name: value for name, value in HEADERS.items() if name != "Authorization"}


def speech(serving: Serving, headers: dict[str, str], **body: Any) -> Any:
    return serving.replay(Sent("POST", "/v1/audio/speech", headers, body))


def test_the_setup_tries_a_full_stop(serving: Serving) -> None:
    body = {"model": "tts-1", "input": ".", "voice": "alloy", "response_format": "mp3"}

    assert speech(serving, HEADERS, **body).status_code == 200
    assert speech(serving, KEYLESS, **body).status_code == 401


@pytest.mark.parametrize("headers", [HEADERS, KEYLESS], ids=["key", "no key"])
def test_voices_are_found_beside_the_speech(serving: Serving, headers: dict[str, str]) -> None:
    found = serving.replay(Sent("GET", "/v1/audio/voices", headers, query={"limit": "100"})).json()

    voices = found.get("items") or found.get("data") or found["voices"]
    assert all(isinstance(voice["id"], str) for voice in voices)
    assert "Ada" in {voice["name"] for voice in voices}


@pytest.mark.parametrize(
    ("form", "codec", "content_type"),
    [
        ("mp3", "mp3float", "audio/mpeg"),
        ("wav", "pcm_s16le", "audio/wav"),
        ("opus", "opus", "audio/ogg"),
    ],
)
def test_speech_comes_in_each_format_it_offers(
    serving: Serving, form: str, codec: str, content_type: str
) -> None:
    body = {"model": "tts-1", "input": TEXT, "voice": "shimmer", "response_format": form}
    answer = speech(serving, HEADERS, **body, speed=1.0)

    check_file(answer, content_type, codec)
    assert not ignored_in(answer)


def test_instructions_and_extra_payload_are_let_pass(serving: Serving) -> None:
    body = {"model": "tts-1", "input": TEXT, "voice": "shimmer", "response_format": "mp3"}
    answer = speech(serving, HEADERS, **body, instructions="Whisper.", chatterbox={"exaggerate": 1})

    assert answer.status_code == 200
    assert "chatterbox" in ignored_in(answer)
