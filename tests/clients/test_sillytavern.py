"""SillyTavern: the providers `OpenAI` and `OpenAI Compatible`, and the extension for Fish Audio.

src/endpoints/openai.js, public/scripts/extensions/tts/openai*.js, and the extension's server part.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.conftest import Serving
from tests.clients.replay import (
    KEY,
    TEXT,
    Sent,
    bare_samples,
    check_file,
    ignored_in,
    is_speech,
)

HEADERS = {
    "Content-Type": "application/json",
    "Authorization": f"Bearer {KEY}",
    "User-Agent": "node-fetch",
    "Accept": "*/*",
    "Accept-Encoding": "gzip, deflate, br",
}
FISH = HEADERS | {"model": "s1"}


def speech(serving: Serving, **more: Any) -> Any:
    body = {"input": TEXT, "response_format": "mp3", "voice": "alloy", "speed": 1, "model": "tts-1"}
    return serving.replay(Sent("POST", "/v1/audio/speech", HEADERS, body | more))


@pytest.mark.parametrize("voice", ["alloy", "shimmer", "Ada"])
def test_both_providers_speak(serving: Serving, voice: str) -> None:
    answer = speech(serving, voice=voice)

    check_file(answer, "audio/mpeg", "mp3float")
    assert answer.headers["x-tts-voice"]
    assert not ignored_in(answer)


def test_the_compatible_provider_streams_bare_samples(serving: Serving) -> None:
    answer = speech(serving, response_format="pcm", stream=True, retry_badcase=True)

    assert answer.headers["content-type"].startswith("audio/pcm")
    assert is_speech(bare_samples(answer.content), 24_000)
    assert ignored_in(answer) == {"retry_badcase"}


def test_errors_are_text_with_a_sentence(serving: Serving) -> None:
    answer = speech(serving, voice="Nobody")

    assert answer.status_code == 404
    assert "Nobody" in answer.text


def test_fish_voices_are_found(serving: Serving) -> None:
    query = {"self": "true", "page_size": "100", "page_number": "1"}
    found = serving.replay(Sent("GET", "/model", HEADERS, query=query)).json()

    assert found["has_more"] is False and found["total"] == len(found["items"])
    ada = next(item for item in found["items"] if item["title"] == "Ada")
    assert (ada["type"], ada["state"]) == ("tts", "trained")
    assert isinstance(ada["_id"], str) and isinstance(ada["languages"], list)


def test_fish_speaks(serving: Serving) -> None:
    body = {
        "text": TEXT,
        "reference_id": serving.voice_id,
        "format": "mp3",
        "latency": "balanced",
        "temperature": 0.7,
        "top_p": 0.7,
        "prosody": {"speed": 1.1},
    }
    answer = serving.replay(Sent("POST", "/v1/tts", FISH, body))

    check_file(answer, "audio/mpeg", "mp3float")
    assert not ignored_in(answer)


def test_fish_errors_have_the_member_that_is_shown(serving: Serving) -> None:
    body = {"text": TEXT, "reference_id": "Nobody", "format": "mp3"}
    answer = serving.replay(Sent("POST", "/v1/tts", FISH, body))

    assert answer.status_code == 404
    assert "Nobody" in answer.json()["message"]
