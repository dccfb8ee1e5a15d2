"""ElevenLabs' calls: what is read of a request, what is said of the rest, errors in its shape."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from synth.dialects.elevenlabs import WELL_KNOWN
from synth.dialects.speech_wait import THEN_HEADER
from synth.dialects.views import ignored_counts
from synth.live.streams import LIVE_HEADER
from synth.models import RenderJob
from tests.answers import ignored_of
from tests.factories import make_user, make_voice
from voices.models import Voice

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("ada")]

URL = "/v1/text-to-speech"
PREFIX = "voice_settings."


@pytest.fixture
def ada(job_services: None) -> Voice:
    """A voice that everybody may use."""
    return make_voice("Ada", language="en-GB")


def post(api: APIClient, voice: str = "Ada", query: str = "", **fields: Any) -> Any:
    """Ask for speech; no wrapper waits here, so an unfinished job answers at once."""
    return api.post(f"{URL}/{voice}{query}", {"text": "Hello there."} | fields, format="json")


def error_of(answer: Any) -> tuple[int, str, str | None]:
    """Return status, code and field of an error, which has ElevenLabs' members and one of ours."""
    body = answer.json()
    assert list(body) == ["detail"] and set(body["detail"]) == {"status", "message", "param"}
    assert body["detail"]["message"]
    return answer.status_code, body["detail"]["status"], body["detail"]["param"]


def test_both_addresses_make_a_live_job(api: APIClient, operator: User, ada: Voice) -> None:
    answer = post(api, str(ada.pk), voice_settings={"speed": 1.1}, model_id="eleven_v3", seed=7)

    job = RenderJob.objects.get()
    assert (job.text, job.speed, job.seed) == ("Hello there.", 1.1, 7)
    assert (job.format, job.sample_rate, job.bit_rate) == ("mp3", 44_100, 128_000)
    assert (job.owner, job.api_key) == (operator, operator.api_keys.get())
    assert job.live_requested_at is not None and LIVE_HEADER in answer.headers
    result = f"{URL}/results/{job.pk}"
    assert answer.headers[THEN_HEADER] == f"300.0 {job.pk} {result}?stream_format=audio"
    assert error_of(answer) == (503, "too_many_waiting", None)
    assert (ignored_of(answer), answer.headers["X-TTS-Voice"]) == ("", "Ada")
    same: dict[str, Any] = {"voice_settings": {"speed": 1.1}, "seed": 7}
    for address in ("Ada/stream", "ada/stream/", "Ada/"):
        assert post(api, address, **same).status_code == 503, address
    assert RenderJob.objects.count() == 1
    assert error_of(api.get(result))[:2] == (504, "job_not_finished")
    RenderJob.objects.update(owner=make_user())
    assert error_of(api.get(result))[:2] == (404, "job_not_found")


@pytest.mark.parametrize(
    ("name", "form", "rate", "bits", "ignored"),
    [
        ("mp3_44100_192", "mp3", 44_100, 192_000, ""), ("mp3_22050_32", "mp3", 22_050, 32_000, ""),
        ("pcm_16000", "pcm", 16_000, None, ""), ("pcm_44100", "pcm", 44_100, None, ""),
        ("opus_48000_64", "opus", 48_000, 64_000, ""), ("wav_48000", "wav", 48_000, None, ""),
        ("mp3_22050_320", "mp3", 22_050, None, "output_format"),
        ("pcm_16000_64", "pcm", 16_000, None, "output_format"),
        ("", "mp3", 44_100, 128_000, ""),
    ],
)  # fmt: skip
def test_the_query_says_the_format(
    api: APIClient, name: str, form: str, rate: int, bits: int | None, ignored: str
) -> None:
    answer = post(api, query=f"?output_format={name}")

    job = RenderJob.objects.get()
    assert (job.format, job.sample_rate, job.bit_rate) == (form, rate, bits)
    assert ignored_of(answer) == ignored


@pytest.mark.parametrize(
    "name", ["ulaw_8000", "alaw_8000", "mp3", "pcm_12345", "opus_44100_64", "PCM_16000", "%00", "_"]
)
def test_formats_that_are_not_there_are_refused_with_what_there_is(
    api: APIClient, name: str
) -> None:
    answer = post(api, query=f"?output_format={name}")

    assert error_of(answer) == (400, "output_format_unknown", "output_format")
    assert "pcm_24000" in answer.json()["detail"]["message"]


def test_what_is_ignored_is_named_and_counted(api: APIClient) -> None:
    settings = {"stability": 0.5, "use_speaker_boost": True, "speed": 1.0, "style": None}
    rows: list[tuple[dict[str, Any], str]] = [
        ({"voice_settings": settings}, f"{PREFIX}stability, {PREFIX}use_speaker_boost"),
        ({"language_code": "xx-nonsense-"}, "language_code"), ({"language_code": "de"}, ""),
        ({"previous_text": "Before.", "next_text": None}, "previous_text"),
        ({"apply_text_normalization": "on", "voice_settings": None, "seed": None}, ""),
    ]  # fmt: skip
    for number, (fields, names) in enumerate(rows):
        answer = post(api, text=f"Text {number}.", **fields)
        assert (answer.status_code, ignored_of(answer)) == (503, names), fields
    assert RenderJob.objects.get(text="Text 2.").language == "de"
    assert RenderJob.objects.get(text="Text 4.").normalise is True
    query = "?optimize_streaming_latency=3&enable_logging=false"
    assert ignored_of(post(api, query=query)) == "enable_logging, optimize_streaming_latency"
    assert ignored_counts()["elevenlabs"] == {
        "enable_logging": 1, "language_code": 1, "optimize_streaming_latency": 1,
        "previous_text": 1, "voice_settings.stability": 1, "voice_settings.use_speaker_boost": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "code", "param"),
    [
        ("text", 5, "invalid", "text"), ("text", None, "required", "text"),
        ("text", "a\0", "text_not_text", "text"), ("seed", "7", "invalid", "seed"),
        ("seed", -1, "out_of_range", "seed"), ("voice_settings", 5, "invalid", "voice_settings"),
        ("voice_settings", {"speed": 5}, "out_of_range", "voice_settings.speed"),
        ("language_code", ["de"], "invalid", "language_code"),
        ("apply_text_normalization", "x", "invalid_choice", "apply_text_normalization"),
    ],
)  # fmt: skip
def test_wrong_values_are_refused_in_elevenlabs_shape(
    api: APIClient, name: str, value: object, code: str, param: str
) -> None:
    wrong: dict[str, Any] = {name: value}
    assert error_of(post(api, **wrong)) == (400, code, param)
    assert not RenderJob.objects.exists()


def test_addresses_name_voices_that_may_be_used(api: APIClient) -> None:
    make_voice("Secret", owner=make_user())
    for well_known in (*WELL_KNOWN, "alloy"):
        assert post(api, well_known).headers["X-TTS-Voice"] == "Ada"
    for lost in ("Secret", "Nobody", "a%00b", "a%0Ab", "x" * 101):
        assert error_of(post(api, lost)) == (404, "voice_not_found", "voice_id"), lost
    assert error_of(api.get(f"{URL}/Ada"))[:2] == (405, "method_not_allowed")


def test_voices_and_models_are_listed_in_elevenlabs_shape(
    api: APIClient, operator: User, ada: Voice
) -> None:
    bob = make_voice("Bob", owner=operator)
    make_voice("Secret", owner=make_user())
    Voice.objects.filter(pk=make_voice("Old").pk).update(archived=True)

    answer = api.get("/v1/voices?show_legacy=true")
    assert ignored_of(answer) == "show_legacy"
    shown = answer.json()["voices"]
    assert [(one["voice_id"], one["name"], one["is_owner"]) for one in shown] == [
        (str(ada.pk), "Ada", False), (str(bob.pk), "Bob", True),
    ]  # fmt: skip
    assert [one["category"] for one in shown] == ["premade", "cloned"]
    assert shown[0]["labels"] == {"language": "en-GB"}
    assert api.get(f"/v1/voices/{bob.pk}").json() == shown[1]
    for lost in ("Secret", "alloy", "a%00b"):
        assert error_of(api.get(f"/v1/voices/{lost}"))[:2] == (404, "voice_not_found"), lost
    key = str(api.defaults["HTTP_AUTHORIZATION"]).removeprefix("Bearer ")
    models = APIClient().get("/v1/models", HTTP_XI_API_KEY=key).json()
    assert "tts-1" in [model["model_id"] for model in models]
    assert api.get("/v1/models").json()["object"] == "list"


def test_keys_and_bodies_are_refused_in_elevenlabs_shape(api: APIClient) -> None:
    nobody = APIClient()
    for answer in (nobody.get("/v1/voices"), nobody.get("/v1/voices/Ada"), post(nobody)):
        assert error_of(answer)[0] == 401
    wrong = nobody.get("/v1/models", HTTP_XI_API_KEY="wrong")
    assert error_of(wrong)[0] == 401
    for body, kind, status in (
        ("{", "application/json", 400),
        ("[]", "application/json", 400),
        ('{"text": "x", "seed": NaN}', "application/json", 400),
        ("text=x", "application/x-www-form-urlencoded", 415),
    ):
        answer = api.generic("POST", f"{URL}/Ada", body, content_type=kind)
        assert error_of(answer)[0] == status, body
