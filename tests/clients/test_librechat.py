"""LibreChat: the providers openai, azureOpenAI, localai and elevenlabs of TTSService.js."""

from __future__ import annotations

from typing import Any

from tests.clients.conftest import Serving
from tests.clients.replay import KEY, TEXT, Sent, check_file, ignored_in

AXIOS = {
    "Accept": "application/json, text/plain, */*",
    "Content-Type": "application/json",
    "User-Agent": "axios/1.12.1",
    "Accept-Encoding": "gzip, compress, deflate, br",
}
BEARER = AXIOS | {"Authorization": f"Bearer {KEY}"}


def test_openai_speaks(serving: Serving) -> None:
    body = {"input": TEXT, "model": "tts-1", "voice": "alloy"}
    answer = serving.replay(Sent("POST", "/v1/audio/speech", BEARER, body))

    check_file(answer, "audio/mpeg", "mp3float")
    assert not ignored_in(answer)


def test_openai_with_a_backend_says_that_it_was_ignored(serving: Serving) -> None:
    body = {"input": TEXT, "model": "tts-1", "voice": "alloy", "backend": "piper"}
    answer = serving.replay(Sent("POST", "/v1/audio/speech", BEARER, body))

    assert answer.status_code == 200
    assert ignored_in(answer) == {"backend"}


def test_localai_names_the_voice_as_its_model(serving: Serving) -> None:
    body = {"input": TEXT, "model": "Ada", "backend": "piper"}
    answer = serving.replay(Sent("POST", "/v1/audio/speech", BEARER, body))

    check_file(answer, "audio/mpeg", "mp3float")
    assert answer.headers["x-tts-voice"] == "Ada"


def test_azure_speaks(serving: Serving) -> None:
    headers = AXIOS | {"api-key": KEY}
    body = {"model": "tts-1", "input": TEXT, "voice": "nova"}
    path = "/openai/deployments/tts-1/audio/speech"
    query = {"api-version": "2024-02-15-preview"}
    answer = serving.replay(Sent("POST", path, headers, body, query))

    check_file(answer, "audio/mpeg", "mp3float")
    assert not ignored_in(answer)


def elevenlabs(serving: Serving, voice: str) -> Any:
    headers = AXIOS | {"xi-api-key": KEY, "Accept": "audio/mpeg"}
    body = {
        "model_id": "eleven_multilingual_v2",
        "text": TEXT,
        "voice_settings": {
            "similarity_boost": 0.75,
            "stability": 0.5,
            "style": 0,
            "use_speaker_boost": True,
        },
        "pronunciation_dictionary_locators": [],
    }
    path = f"/v1/text-to-speech/{voice}/stream"
    return serving.replay(Sent("POST", path, headers, body))


def test_elevenlabs_speaks(serving: Serving) -> None:
    answer = elevenlabs(serving, serving.voice_id)

    check_file(answer, "audio/mpeg", "mp3float")
    assert "voice_settings.stability" in ignored_in(answer)


def test_elevenlabs_errors_have_their_shape(serving: Serving) -> None:
    answer = elevenlabs(serving, "Nobody")

    assert answer.status_code == 404
    assert answer.json()["detail"]["status"] == "voice_not_found"
