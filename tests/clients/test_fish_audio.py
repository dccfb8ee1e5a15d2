"""Fish Audio's two clients in Python, and fish-speech's own tools/api_client.py."""

from __future__ import annotations

import base64
from typing import Any

import ormsgpack
import pytest

from tests.clients.conftest import Serving
from tests.clients.official import run_python_client
from tests.clients.replay import KEY, TEXT, Sent, check_file, ignored_in
from tests.workers.commands import CLIP, TRANSCRIPT

MSGPACK = {"authorization": f"Bearer {KEY}", "content-type": "application/msgpack"}
SDK = MSGPACK | {"user-agent": "fish-audio/python/1.3.0", "model": "s1"}
API_CLIENT: dict[str, Any] = {
    "text": TEXT,
    "references": [],
    "reference_id": None,
    "format": "wav",
    "max_new_tokens": 1024,
    "chunk_length": 300,
    "top_p": 0.8,
    "repetition_penalty": 1.1,
    "temperature": 0.8,
    "streaming": False,
    "use_memory_cache": "off",
    "seed": None,
}

PROGRAM = """
import base64
from fish_audio_sdk import Session, TTSRequest
from fishaudio import FishAudio
from fishaudio.exceptions import APIError
from fishaudio.types import ReferenceAudio

client = FishAudio(api_key=given["key"], base_url=given["url"])
listed = client.voices.list()
ada = next(voice for voice in listed.items if voice.title == "Ada")
clip = ReferenceAudio(audio=base64.b64decode(given["clip"]), text=given["transcript"])
speak = client.tts.convert
found = {
    "state": client.voices.get(ada.id).state,
    "total": listed.total == len(listed.items),
    "mp3": len(speak(text=given["text"], reference_id=ada.id, speed=1.2, latency="normal")),
    "cloned": len(speak(text=given["text"], references=[clip], format="wav")),
    "failure": None,
}
try:
    speak(text=given["text"], reference_id="Nobody")
except APIError as error:
    found["failure"] = [error.status, error.message]
session = Session(given["key"], base_url=given["url"])
request = TTSRequest(text=given["text"], reference_id=ada.id)
found["older"] = sum(len(part) for part in session.tts(request))
found["older_total"] = session.list_models().total
print(json.dumps(found))
"""


def api_client(serving: Serving, **more: Any) -> Any:
    body = ormsgpack.packb(API_CLIENT | more)
    return serving.replay(Sent("POST", "/v1/tts", MSGPACK, body, {"format": "msgpack"}))


@pytest.mark.parametrize(
    ("form", "codec", "content_type"),
    [
        ("wav", "pcm_s16le", "audio/wav"),
        ("mp3", "mp3float", "audio/mpeg"),
        ("flac", "flac", "audio/flac"),
    ],
)
def test_the_tool_of_fish_speech_speaks(
    serving: Serving, form: str, codec: str, content_type: str
) -> None:
    answer = api_client(serving, format=form)

    check_file(answer, content_type, codec)
    ignored = {"max_new_tokens", "chunk_length", "repetition_penalty", "use_memory_cache"}
    assert ignored_in(answer) == ignored


def test_the_tool_of_fish_speech_clones(serving: Serving) -> None:
    references = [{"audio": CLIP.read_bytes(), "text": TRANSCRIPT}]
    answer = api_client(serving, references=references, streaming=True)

    check_file(answer, "audio/wav", "pcm_s16le")
    assert "x-tts-voice" not in answer.headers


def test_the_tool_of_fish_speech_finds_the_server_alive(serving: Serving) -> None:
    answer = serving.replay(Sent("GET", "/v1/health", {"accept": "*/*"}))

    assert answer.json() == {"status": "ok"}


def test_json_carries_clips_as_base64(serving: Serving) -> None:
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    clip = base64.b64encode(CLIP.read_bytes()).decode()
    body = {"text": TEXT, "format": "mp3", "references": [{"audio": clip, "text": TRANSCRIPT}]}
    answer = serving.replay(Sent("POST", "/v1/tts", headers, body))

    check_file(answer, "audio/mpeg", "mp3float")


@pytest.mark.parametrize("content", [b"\xc1", b"", ormsgpack.packb([1, 2])])
def test_a_broken_body_is_named(serving: Serving, content: bytes) -> None:
    answer = serving.replay(Sent("POST", "/v1/tts", SDK, content))

    assert answer.status_code == 400
    assert answer.json()["status"] == 400
    assert answer.json()["message"]


@pytest.mark.clients
def test_the_clients_themselves_list_clone_and_speak(serving: Serving) -> None:
    clip = base64.b64encode(CLIP.read_bytes()).decode()
    given = {"url": serving.url, "key": serving.key, "clip": clip}
    found = run_python_client(PROGRAM, **given, transcript=TRANSCRIPT, text=TEXT)

    assert found["state"] == "trained"
    assert found["total"] is True
    assert found["older_total"] > 0
    assert min(found["mp3"], found["cloned"], found["older"]) > 5000
    assert found["failure"][0] == 404 and "Nobody" in found["failure"][1]
