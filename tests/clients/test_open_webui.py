"""Open WebUI: engines `openai` and `elevenlabs` of backend/open_webui/routers/audio.py."""

from __future__ import annotations

import pytest

from tests.clients.conftest import Serving
from tests.clients.replay import KEY, TEXT, Sent, check_file, ignored_in

LISTS = {
    "User-Agent": "python-requests/2.32.5",
    "Accept-Encoding": "gzip, deflate, br",
    "Accept": "*/*",
}
AIOHTTP = {
    "Accept": "*/*",
    "Accept-Encoding": "gzip, deflate, br",
    "User-Agent": "Python/3.11 aiohttp/3.13.2",
    "Content-Type": "application/json",
}
SPEECH = AIOHTTP | {
    "Authorization": f"Bearer {KEY}",
    "X-OpenWebUI-User-Name": "Ada%20Lovelace",
    "X-OpenWebUI-User-Id": "0f0f7c8e-7a39-4f1b-8f57-5a1a6f3a2b11",
    "X-OpenWebUI-User-Email": "ada@example.org",
    "X-OpenWebUI-User-Role": "user",
}
BODY = {"input": TEXT, "model": "tts-1", "voice": "alloy"}
ELEVENLABS = {"xi-api-key": KEY, "Content-Type": "application/json"}


def test_models_and_voices_are_listed_without_a_key(serving: Serving) -> None:
    models = serving.replay(Sent("GET", "/v1/audio/models", LISTS)).json()["models"]
    voices = serving.replay(Sent("GET", "/v1/audio/voices", LISTS)).json()["voices"]

    assert "tts-1" in {model["id"] for model in models}
    assert "Ada" in {voice["id"] for voice in voices}
    assert all(isinstance(voice["name"], str) for voice in voices)


def test_speech_comes_as_the_mp3_that_is_stored(serving: Serving) -> None:
    answer = serving.replay(Sent("POST", "/v1/audio/speech", SPEECH, BODY))

    check_file(answer, "audio/mpeg", "mp3float")
    assert not ignored_in(answer)


def test_parameters_that_an_administrator_adds_are_let_pass(serving: Serving) -> None:
    body = BODY | {"speed": 1.2, "volume_multiplier": 2}
    answer = serving.replay(Sent("POST", "/v1/audio/speech", SPEECH, body))

    assert answer.status_code == 200
    assert ignored_in(answer) == {"volume_multiplier"}


def test_errors_have_the_member_that_is_shown(serving: Serving) -> None:
    body = BODY | {"voice": "Nobody"}
    answer = serving.replay(Sent("POST", "/v1/audio/speech", SPEECH, body))

    assert answer.status_code == 404
    assert "Nobody" in answer.json()["error"]["message"]


def test_the_engine_elevenlabs_lists_and_speaks(serving: Serving) -> None:
    models = serving.replay(Sent("GET", "/v1/models", ELEVENLABS)).json()
    voices = serving.replay(Sent("GET", "/v1/voices", ELEVENLABS)).json()["voices"]
    body = {
        "text": TEXT,
        "model_id": models[0]["model_id"],
        "voice_settings": {"stability": 0.5, "similarity_boost": 0.5},
    }
    path = f"/v1/text-to-speech/{voices[0]['voice_id']}"
    headers = AIOHTTP | ELEVENLABS | {"Accept": "audio/mpeg"}
    answer = serving.replay(Sent("POST", path, headers, body))

    assert isinstance(models[0]["name"], str) and isinstance(voices[0]["name"], str)
    check_file(answer, "audio/mpeg", "mp3float")
    assert ignored_in(answer) == {"voice_settings.stability", "voice_settings.similarity_boost"}


@pytest.mark.parametrize("path", ["/v1/audio/speech", "/v1/audio/speech/"])
def test_a_missing_key_is_named(serving: Serving, path: str) -> None:
    answer = serving.replay(Sent("POST", path, AIOHTTP, BODY))

    assert answer.status_code == 401
    assert answer.json()["error"]["message"]
