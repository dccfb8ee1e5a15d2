"""ElevenLabs' client in Python, with `base_url` set."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.conftest import Serving
from tests.clients.official import run_python_client
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
    "accept": "*/*",
    "content-type": "application/json",
    "user-agent": "elevenlabs/2.78.0",
    "x-fern-language": "Python",
    "x-fern-sdk-name": "elevenlabs",
    "x-fern-sdk-version": "2.78.0",
    "xi-api-key": KEY,
}

PROGRAM = """
from elevenlabs.client import ElevenLabs
from elevenlabs.core.api_error import ApiError

client = ElevenLabs(api_key=given["key"], base_url=given["url"])
speech = client.text_to_speech
voices = client.voices.get_all().voices
ada = next(voice for voice in voices if voice.name == "Ada")
mp3 = b"".join(speech.convert(ada.voice_id, text=given["text"], model_id="eleven_flash_v2_5"))
pcm = b"".join(speech.stream(ada.voice_id, text=given["text"], output_format="pcm_16000"))
failures = []
for voice, more in (("Nobody", {}), (ada.voice_id, {"output_format": "ulaw_8000"})):
    try:
        b"".join(speech.convert(voice, text=given["text"], **more))
    except ApiError as error:
        failures.append([error.status_code, error.body["detail"]["status"]])
print(json.dumps({
    "models": [model.model_id for model in client.models.list()],
    "name": client.voices.get(ada.voice_id).name,
    "mp3": len(mp3),
    "pcm": pcm.hex(),
    "failures": failures,
}))
"""


def speech(serving: Serving, output: str, *, stream: bool = False, **more: Any) -> Any:
    path = f"/v1/text-to-speech/{serving.voice_id}" + ("/stream" if stream else "")
    body = {"text": TEXT, "model_id": "eleven_multilingual_v2"} | more
    return serving.replay(Sent("POST", path, HEADERS, body, {"output_format": output}))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("output", "codec", "content_type"),
    [
        ("mp3_44100_128", "mp3float", "audio/mpeg"),
        ("mp3_22050_32", "mp3float", "audio/mpeg"),
        ("opus_48000_64", "opus", "audio/ogg"),
        ("wav_24000", "pcm_s16le", "audio/wav"),
    ],
)
def test_speech_comes_in_the_format_of_the_query(
    serving: Serving, output: str, codec: str, content_type: str, stream: bool
) -> None:
    answer = speech(serving, output, stream=stream)

    check_file(answer, content_type, codec)
    assert not ignored_in(answer)


@pytest.mark.parametrize("rate", [16_000, 24_000])
def test_bare_samples_have_the_rate_of_the_query(serving: Serving, rate: int) -> None:
    answer = speech(serving, f"pcm_{rate}", seed=7, voice_settings={"speed": 1.1, "style": 0.2})

    assert is_speech(bare_samples(answer.content), rate)
    assert ignored_in(answer) == {"voice_settings.style"}


def test_a_format_that_is_not_there_is_refused(serving: Serving) -> None:
    answer = speech(serving, "ulaw_8000")

    assert answer.status_code == 400
    assert answer.json()["detail"]["status"] == "output_format_unknown"


def test_a_wrong_key_is_named(serving: Serving) -> None:
    answer = serving.replay(Sent("GET", "/v1/voices", HEADERS | {"xi-api-key": "wrong"}))

    assert answer.status_code == 401
    assert answer.json()["detail"]["message"]


@pytest.mark.clients
def test_the_client_itself_lists_and_speaks(serving: Serving) -> None:
    found = run_python_client(PROGRAM, url=serving.url, key=serving.key, text=TEXT)

    assert "tts-1" in found["models"]
    assert found["name"] == "Ada"
    assert found["mp3"] > 5000
    assert is_speech(bare_samples(bytes.fromhex(found["pcm"])), 16_000)
    assert found["failures"] == [[404, "voice_not_found"], [400, "output_format_unknown"]]
