"""AnythingLLM: the providers `OpenAI`, `OpenAI Compatible` and Kokoro, by OpenAI's client."""

from __future__ import annotations

from typing import Any

from tests.clients.conftest import Serving
from tests.clients.replay import KEY, TEXT, Sent, check_file, ignored_in

HEADERS = {
    "accept": "application/octet-stream",
    "accept-encoding": "gzip,deflate",
    "authorization": f"Bearer {KEY}",
    "content-type": "application/json",
    "user-agent": "OpenAI/JS 4.95.1",
    "x-stainless-arch": "x64",
    "x-stainless-lang": "js",
    "x-stainless-os": "Linux",
    "x-stainless-package-version": "4.95.1",
    "x-stainless-retry-count": "0",
    "x-stainless-runtime": "node",
    "x-stainless-runtime-version": "v18.20.8",
    "x-stainless-timeout": "600000",
}


def speech(serving: Serving, **body: Any) -> Any:
    return serving.replay(Sent("POST", "/v1/audio/speech", HEADERS, body))


def test_the_compatible_provider_speaks(serving: Serving) -> None:
    answer = speech(serving, model="tts-1", voice="Ada", input=TEXT)

    check_file(answer, "audio/mpeg", "mp3float")
    assert answer.headers["x-tts-voice"] == "Ada"
    assert not ignored_in(answer)


def test_kokoro_may_name_any_model_but_a_voice_of_ours(serving: Serving) -> None:
    assert speech(serving, model="kokoro", voice="Ada", input=TEXT).status_code == 200

    answer = speech(serving, model="kokoro", voice="af_bella", input=TEXT)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "voice_not_found"
