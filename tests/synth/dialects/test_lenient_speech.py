"""Requests for speech as other servers' clients send them: what is honoured, what is told."""

from __future__ import annotations

import base64
import io
import itertools
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import av
import numpy as np
import pytest
from django.contrib.auth.models import User
from pytest_django import Settings
from rest_framework.test import APIClient

from synth.dialects.views import MOST_COUNTED, OTHERS, count_ignored, ignored_counts
from synth.formats import FORMATS
from synth.live.pipeline import LiveOptions
from synth.live.streams import LIVE_HEADER
from synth.models import IgnoredField, RenderJob
from tests.answers import ignored_of
from tests.factories import make_user, make_voice
from tests.voices.clips import clip_bytes
from voices.models import Voice, VoiceAlias

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("ada")]

URL = "/v1/audio/speech"


@pytest.fixture
def ada(job_services: None) -> Voice:
    """A voice that everybody may use."""
    return make_voice("Ada")


def post(api: APIClient, url: str = URL, **fields: Any) -> Any:
    values = {"input": "Hello there.", "voice": "Ada"} | fields
    return api.post(url, {name: it for name, it in values.items() if it != ""}, format="json")


def test_fields_that_are_ignored_are_named_and_counted(api: APIClient) -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"instructions": "warm", "backend": "piper"}, "backend, instructions"),
        ({"instructions": "  "}, ""),
        ({"instructions": None, "speed": None, "volume": 3}, "instructions, speed, volume"),
        ({"extra_body": {"backend": "x", "top_k": None}}, "backend, top_k"),
        ({"extra_body": "x", "params": None}, "extra_body, params"),
        ({"seed": -1}, "seed"), ({"seed": "-1"}, "seed"),
        ({"language": "Auto"}, "language"),
        ({"lang_code": "q", "language": 5}, "lang_code, language"),
        ({"language": "de", "lang_code": "a"}, "lang_code"),
        ({"ref_text": "Words without a clip."}, "ref_text"),
        ({"a\nb, c": 1, "ü": 2}, "a%0Ab%2C c, %C3%BC"),
    ]  # fmt: skip
    for fields, names in rows:
        answer = post(api, **fields)
        assert (answer.status_code, ignored_of(answer)) == (503, names), fields
    answer = api.post(f"{URL}?api-version=1&x=2", {"input": "Hi.", "voice": "Ada"}, format="json")
    assert ignored_of(answer) == "x"
    assert RenderJob.objects.filter(text="Hello there.").count() == 2  # one of them in German
    assert ignored_counts()["openai"] == {
        "backend": 2, "instructions": 2, "lang_code": 2, "language": 2, "seed": 2, OTHERS: 1,
        "extra_body": 1, "params": 1, "ref_text": 1, "speed": 1, "top_k": 1, "volume": 1, "x": 1,
    }  # fmt: skip


def test_counters_are_bounded_and_shown_to_who_may_see_the_installation(
    api: APIClient, client_of: Callable[[User], APIClient]
) -> None:
    count_ignored("openai", [f"field{number}" for number in range(MOST_COUNTED - 1)])
    for _ in range(2):
        count_ignored("openai", ["one", "two", "field0"])
    assert IgnoredField.objects.count() <= MOST_COUNTED + 1
    assert (ignored_counts()["openai"]["field0"], ignored_counts()["openai"][OTHERS]) == (3, 2)
    shown = client_of(make_user(is_superuser=True)).get("/api/v1/stats").json()["ignored_fields"]
    assert shown == ignored_counts()
    assert "ignored_fields" not in client_of(make_user()).get("/api/v1/stats").json()
    unknown: dict[str, Any] = {f"unknown{number}": 1 for number in range(500)}
    answer = post(api, **unknown)
    assert ignored_of(answer).endswith(", ...") and len(ignored_of(answer)) < 2000


def test_what_the_model_can_do_is_honoured_wherever_it_stands(api: APIClient) -> None:
    rows: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"seed": 7, "temperature": 0.5}, {"seed": 7, "temperature": 0.5}),
        ({"top_p": 0.9, "top_k": 20}, {"top_p": 0.9, "top_k": 20}),
        ({"language": "pt-br"}, {"language": "pt-BR"}),
        ({"lang_code": "b"}, {"language": "en-GB"}), ({"lang_code": "de"}, {"language": "de"}),
        ({"extra_body": {"seed": 8, "lang_code": "j"}}, {"seed": 8, "language": "ja"}),
        ({"params": {"seed": 9, "cfg_weight": 0.5}}, {"seed": 9}),
        ({"seed": 10, "extra_body": {"seed": 11, "top_p": 0.8}}, {"seed": 10, "top_p": 0.8}),
        ({"speed": None, "extra_body": {"speed": 1.5}}, {"speed": 1.5}),
        ({"response_format": None}, {"format": "mp3"}),
    ]  # fmt: skip
    for number, (fields, wanted) in enumerate(rows):
        post(api, input=f"Text {number}.", **fields)
        job = RenderJob.objects.get(text=f"Text {number}.")
        assert {name: getattr(job, name) for name in wanted} == wanted, fields
    live = post(api, input="At once.", stream=True, response_format="wav")
    assert LiveOptions.from_header(live.headers[LIVE_HEADER]) == LiveOptions("wav")
    assert ignored_of(live) == ""
    post(api, seed=1), post(api, seed=1, temperature=0.7), post(api, seed=1, temperature=None)
    assert RenderJob.objects.filter(text="Hello there.").count() == 2  # each is another speech


def test_any_model_is_the_loaded_one_which_the_answer_names(
    api: APIClient, settings: Settings
) -> None:
    for model in ("gpt-5", "tts-1", "kokoro", None, "", "Tiny", "ünï"):
        answer = post(api, model=model)
        assert (answer.status_code, answer.headers["X-TTS-Model"]) == (503, "Tiny"), model
    assert RenderJob.objects.count() == 1
    settings.OPENAI_STRICT = True
    assert post(api, model="gpt-5").headers["X-TTS-Model"] == "Tiny"
    assert post(api, model="tts-1").status_code == 503


def test_voice_that_was_used_is_named_whatever_was_asked_for(
    api: APIClient, operator: User, ada: Voice
) -> None:
    zoe = make_voice("Zoë 100%", owner=operator)
    make_voice("Secret", owner=make_user())
    VoiceAlias.objects.create(name="nova", voice=zoe)
    rows: list[tuple[dict[str, Any], Voice]] = [
        ({"voice": "alloy"}, ada), ({"voice": "ash"}, zoe), ({"voice": "nova"}, zoe),
        ({"voice": str(zoe.pk)}, zoe), ({"voice": {"id": "ada"}}, ada),
        ({"voice": None}, ada), ({"voice": ""}, ada), ({"voice": None, "model": "tts-1"}, ada),
        ({"voice": None, "model": "zoë 100%"}, zoe),  # a server with a model for each voice
        ({"voice": None, "model": "secret"}, ada),
    ]  # fmt: skip
    for number, (fields, voice) in enumerate(rows):
        answer = post(api, input=f"Text {number}.", **fields)
        assert unquote(answer.headers["X-TTS-Voice"]) == voice.name, fields
        job = RenderJob.objects.get(text=f"Text {number}.")
        assert job.voices.get().version.voice == voice, fields
    assert post(api, voice="nova").headers["X-TTS-Voice"] == "Zo%C3%AB 100%25"
    lost = post(api, voice="Adda")
    assert (lost.status_code, "X-TTS-Voice" in lost.headers) == (404, False)
    assert "Similar names: Ada." in lost.json()["error"]["message"]


def test_without_a_voice_that_can_speak_the_error_says_what_to_do(api: APIClient) -> None:
    Voice.objects.update(archived=True)
    answer = post(api, voice="alloy")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "voices_not_ready")
    assert "make one in the admin" in answer.json()["error"]["message"]


@pytest.mark.parametrize("form", FORMATS)
def test_text_without_a_word_is_a_short_silence_of_the_format(api: APIClient, form: str) -> None:
    for text in (" ", ".", "…!?", "🙂👍🏽", "\n"):
        answer = post(api, input=text, response_format=form, instructions="warm")
        assert (answer.status_code, ignored_of(answer)) == (200, "instructions"), text
        assert answer.headers["Content-Type"] == FORMATS[form].content_type
        assert answer.headers["X-TTS-Voice"] == "Ada"
    samples = decoded(answer.content, form)
    assert 0.25 <= len(samples) / 24_000 <= 0.5
    assert np.abs(samples).max() < 1e-3
    events = post(api, input=".", response_format=form, stream_format="sse").content.decode()
    delta, done = (json.loads(line[6:]) for line in events.strip().split("\n\n"))
    assert base64.b64decode(delta["audio"]) == answer.content
    assert (delta["type"], done["type"]) == ("speech.audio.delta", "speech.audio.done")
    assert post(api, input=".", voice="Nobody").status_code == 404
    assert not RenderJob.objects.exists()


def test_empty_input_is_silence_and_a_missing_one_an_error(api: APIClient) -> None:
    for values, status in (({"input": ""}, 200), ({}, 400), ({"input": None}, 400)):
        answer = api.post(URL, {"voice": "Ada"} | values, format="json")
        assert answer.status_code == status, values


def decoded(content: bytes, form: str) -> Any:
    """Return the samples of a file at 24 kHz."""
    if form == "pcm":
        return np.frombuffer(content, "<i2") / 2**15
    resampler = av.AudioResampler(format="flt", layout="mono", rate=24_000)
    with av.open(io.BytesIO(content), "r") as opened:
        frames = itertools.chain(opened.decode(audio=0), (None,))
        parts = [part.to_ndarray()[0] for one in frames for part in resampler.resample(one)]
    return np.concatenate(parts)


def test_clip_that_comes_along_speaks_in_place_of_a_voice(api: APIClient) -> None:
    clip = base64.b64encode(clip_bytes()).decode()
    for number, audio in enumerate((f"data:audio/wav;base64,{clip}", clip)):
        fields = {"input": f"Text {number}.", "ref_audio": audio, "ref_text": "Its words."}
        answer = post(api, **fields)
        assert (answer.status_code, ignored_of(answer)) == (503, "voice"), number
        assert "X-TTS-Voice" not in answer.headers
        version = RenderJob.objects.get(text=f"Text {number}.").voices.get().version
        assert (version.voice, version.clips.get().transcript) == (None, "Its words.")
        again = post(api, **fields, voice="")
        assert (again.headers["TTS-Job-Id"], ignored_of(again)) == (
            answer.headers["TTS-Job-Id"],
            "",
        )
    rows: list[tuple[dict[str, Any], str, str]] = [
        ({"ref_audio": clip}, "transcript_required", "ref_text"),
        ({"ref_audio": clip, "ref_text": " "}, "transcript_required", "ref_text"),
        ({"ref_audio": base64.b64encode(bytes(99)).decode(), "ref_text": "x"}, "clip_not_audio",
         "ref_audio"),
    ]  # fmt: skip
    for fields, code, param in rows:
        error = post(api, **fields).json()["error"]
        assert (error["code"], error["param"]) == (code, param), fields


def test_clip_is_fetched_where_the_setting_says_so(api: APIClient, settings: Settings) -> None:
    settings.URL_REFERENCES = True
    error = post(api, ref_audio="http://127.0.0.1:1/a.wav", ref_text="x").json()["error"]
    assert (error["code"], error["param"]) == ("url_private_address", "ref_audio")


def test_azure_s_addresses_and_trailing_slashes_lead_to_the_same(api: APIClient) -> None:
    ids = set()
    for address in (
        URL, f"{URL}/", "/openai/v1/audio/speech?api-version=preview",
        "/openai/deployments/tts-hd/audio/speech?api-version=2025-04-01-preview",
        "/openai/deployments/tts-hd/audio/speech/",
    ):  # fmt: skip
        answer = post(api, url=address)
        assert (answer.status_code, ignored_of(answer)) == (503, ""), address
        ids.add(answer.headers["TTS-Job-Id"])
    assert len(ids) == 1
    for name in ("%00", "%ED%A0%80"):  # of a model that stands for no voice
        answer = post(api, url=f"/openai/deployments/{name}/audio/speech", voice="")
        assert (answer.status_code, answer.headers["X-TTS-Voice"]) == (503, "Ada"), name
    for address in ("/v1/models/", "/v1/audio/models/", "/v1/audio/voices/", "/v1/models/tts-1/",
                    "/openai/v1/models?api-version=preview", "/v1/test/"):  # fmt: skip
        assert api.get(address).status_code == 200, address
    assert api.get(f"{URL}/{ids.pop()}/").status_code == 504
