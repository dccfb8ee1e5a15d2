"""Requests for speech: what is refused and how, what becomes of a job, which job is joined."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.utils import timezone
from pytest_django import Settings
from rest_framework.test import APIClient

from synth.models import RenderJob, Segment
from synth.openai import speech_views
from synth.openai.speech_wait import THEN_HEADER
from tests.factories import make_ended_job, make_export, make_user, make_version, make_voice
from voices.models import VoiceVersion

pytestmark = pytest.mark.django_db(transaction=True)

URL = "/v1/audio/speech"
Status = RenderJob.Status


def post(api: APIClient, *, without: str = "", **fields: Any) -> Any:
    """Ask for speech; no wrapper waits here, so an unfinished job answers at once."""
    values = {"model": "tts-1", "input": "Hello there.", "voice": "Ada"} | fields
    values.pop(without, None)
    return api.post(URL, values, format="json")


def error_of(response: Any) -> dict[str, Any]:
    """Return the error, which has OpenAI's members and no other."""
    body = response.json()
    assert list(body) == ["error"] and set(body["error"]) == {"message", "type", "param", "code"}
    assert response.headers["Content-Type"] == "application/json"
    error: dict[str, Any] = body["error"]
    return error


def finish(job: RenderJob, content: bytes = b"0123456789", **fields: Any) -> None:
    """End a job as a worker would, with a file of these bytes."""
    key = default_storage.save(f"exports/{job.pk}", ContentFile(content))
    make_export(job, key=key, size_bytes=len(content))
    values = {"status": Status.SUCCEEDED, "finished_at": timezone.now()} | fields
    RenderJob.objects.filter(pk=job.pk).update(**values)


def test_request_makes_a_job_that_remembers_everything(api: APIClient, operator: User) -> None:
    voice = make_voice("Ada")

    answer = post(api, response_format="opus", speed=1.5, stream_format="sse")

    job = RenderJob.objects.get()
    assert (job.text, job.format, job.speed) == ("Hello there.", "opus", 1.5)
    assert (job.owner, job.api_key) == (operator, operator.api_keys.get())
    assert job.voices.get().version == voice.current_version
    seconds, job_id, address = answer.headers[THEN_HEADER].split(" ")
    assert (float(seconds), job_id) == (300.0, str(job.pk))
    assert address == f"{URL}/{job.pk}?stream_format=sse"
    assert (answer.status_code, error_of(answer)["code"]) == (503, "too_many_waiting")
    assert str(job.pk) in error_of(answer)["message"]
    assert answer.headers["Retry-After"] and "x-should-retry" not in answer.headers


def test_format_is_mp3_unless_another_is_asked_for(api: APIClient) -> None:
    make_voice("Ada")

    post(api)

    assert RenderJob.objects.get().format == "mp3"


@pytest.mark.parametrize("speed", [0.25, 4, 1.0])
def test_ends_of_the_range_of_speeds_are_taken(api: APIClient, speed: float) -> None:
    make_voice("Ada")

    assert post(api, speed=speed).status_code == 503
    assert RenderJob.objects.get().speed == speed


@pytest.mark.parametrize(
    ("field", "value", "status", "code"),
    [
        ("input", "", 400, "text_empty"), ("input", "  \n", 400, "text_empty"),
        ("input", 5, 400, "invalid"), ("input", ["a"], 400, "invalid"),
        ("input", None, 400, "null"),
        ("input", "x" * 4097, 400, "input_too_long"), ("input", "a\0b", 400, "text_not_text"),
        ("model", "gpt-5", 404, "model_not_found"), ("model", "", 404, "model_not_found"),
        ("model", 5, 400, "invalid"), ("model", "x" * 201, 400, "max_length"),
        ("voice", "Nobody", 404, "voice_not_found"), ("voice", "alloy", 404, "voice_not_found"),
        ("voice", 5, 400, "invalid"), ("voice", "", 400, "invalid"), ("voice", {}, 400, "invalid"),
        ("voice", {"id": 5}, 400, "invalid"), ("voice", {"name": "Ada"}, 400, "invalid"),
        ("voice", {"id": "Ada", "x": 1}, 400, "invalid"), ("voice", ["Ada"], 400, "invalid"),
        ("voice", "a\0", 400, "invalid"), ("voice", "x" * 101, 400, "invalid"),
        ("instructions", "Whisper.", 400, "instructions_not_supported"),
        ("instructions", 5, 400, "invalid"),
        ("response_format", "ogg", 400, "invalid_choice"),
        ("response_format", ["mp3"], 400, "invalid_choice"),
        ("speed", 0.24, 400, "out_of_range"), ("speed", 4.01, 400, "out_of_range"),
        ("speed", "1", 400, "invalid"), ("speed", True, 400, "invalid"),
        ("stream_format", "mp3", 400, "invalid_choice"),
        ("seed", 5, 400, "unknown_field"), ("language", "en", 400, "unknown_field"),
    ],
)  # fmt: skip
def test_wrong_value_is_refused_with_its_name_and_no_job(
    api: APIClient, field: str, value: object, status: int, code: str
) -> None:
    make_voice("Ada")

    fields: dict[str, Any] = {field: value}
    answer = post(api, **fields)

    error = error_of(answer)
    assert (answer.status_code, error["code"], error["param"]) == (status, code, field)
    assert error["type"] == "invalid_request_error"
    assert answer.headers["x-should-retry"] == "false"
    assert not RenderJob.objects.exists()


@pytest.mark.parametrize("field", ["input", "voice", "model", "instructions", "speed", "\ud800"])
def test_half_of_a_surrogate_pair_is_refused_and_no_server_error(
    api: APIClient, field: str
) -> None:
    make_voice("Ada")
    values = {"model": "tts-1", "input": "Hello.", "voice": "Ada", field: "\ud800"}

    answer = api.generic("POST", URL, json.dumps(values), content_type="application/json")

    assert answer.status_code == 400
    assert error_of(answer)["param"] in (field, "?")


def test_first_answer_of_a_call_that_waits_is_not_logged_as_an_error(
    api: APIClient, caplog: pytest.LogCaptureFixture
) -> None:
    make_voice("Ada")

    assert post(api).status_code == 503
    assert "Service Unavailable" not in caplog.text


@pytest.mark.parametrize("field", ["model", "input", "voice"])
def test_field_that_is_missing_is_named(api: APIClient, field: str) -> None:
    answer = post(api, without=field)

    assert (answer.status_code, error_of(answer)["param"]) == (400, field)


@pytest.mark.parametrize("body", ["", "{", "[]", "null", '"x"', '{"speed": NaN}', "[" * 50_000])
def test_body_that_is_no_object_is_a_400(api: APIClient, body: str) -> None:
    answer = api.generic("POST", URL, body, content_type="application/json")

    assert answer.status_code == 400
    error_of(answer)


def test_text_that_is_too_long_is_sent_to_the_jobs(
    api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_voice("Ada")
    monkeypatch.setattr("synth.openai.speech_views.OPENAI_MAX_INPUT_CHARS", 5)

    error = error_of(post(api, input="123456"))

    assert "5 are allowed" in error["message"] and "POST /api/v1/jobs" in error["message"]
    assert post(api, input="12345").status_code == 503


@pytest.mark.parametrize("value", ["", "   ", None])
def test_instructions_that_say_nothing_are_taken(api: APIClient, value: str | None) -> None:
    make_voice("Ada")

    assert post(api, instructions=value).status_code == 503


def test_voice_is_taken_by_id_alone_or_in_an_object_and_in_any_case(api: APIClient) -> None:
    voice = make_voice("Ada")

    for named in (str(voice.pk), {"id": str(voice.pk)}, "aDA"):
        assert post(api, voice=named).status_code == 503

    assert RenderJob.objects.get().voices.get().version.voice == voice


def test_other_names_of_voices_are_those_of_the_setting_and_a_real_name_comes_first(
    api: APIClient, settings: Settings
) -> None:
    ada, nova = make_voice("Ada"), make_voice("Nova")
    settings.OPENAI_VOICE_ALIASES = {"alloy": "Ada", "nova": "Ada", "onyx": "Nobody"}

    def spoken_by(name: str) -> object:
        post(api, voice=name, input=f"This is {name}.")
        return RenderJob.objects.order_by("created_at").last().voices.get().version.voice  # type: ignore[union-attr]

    assert spoken_by("Alloy") == ada
    assert spoken_by("nova") == nova
    assert post(api, voice="onyx").status_code == 404


def test_voice_that_is_not_encoded_yet_may_be_tried_again(api: APIClient) -> None:
    make_version(make_voice("Ada", versions=0), status=VoiceVersion.Status.PENDING)

    answer = post(api)

    assert (answer.status_code, error_of(answer)["code"]) == (409, "voice_not_ready")
    assert answer.headers["Retry-After"] and "x-should-retry" not in answer.headers


def test_voice_that_failed_is_not_tried_again(api: APIClient) -> None:
    make_version(make_voice("Ada", versions=0), status=VoiceVersion.Status.FAILED)

    answer = post(api)

    assert error_of(answer)["code"] == "voice_failed"
    assert answer.headers["x-should-retry"] == "false"


def test_same_request_joins_the_job_that_goes_on(api: APIClient) -> None:
    make_voice("Ada")

    first = post(api)
    second = post(api, stream_format="sse", instructions="", model="tts-1-hd")

    assert first.headers["TTS-Job-Id"] == second.headers["TTS-Job-Id"]
    assert RenderJob.objects.count() == Segment.objects.count() == 1


@pytest.mark.parametrize(
    "other", [{"input": "Hello."}, {"speed": 1.1}, {"response_format": "wav"}, {"voice": "Bob"}]
)
def test_another_request_makes_a_job_of_its_own(api: APIClient, other: dict[str, Any]) -> None:
    make_voice("Ada")
    make_voice("Bob")

    post(api)
    post(api, **other)

    assert RenderJob.objects.count() == 2


def test_same_request_of_another_user_makes_a_job_of_its_own(
    api: APIClient, client_of: Callable[[User], APIClient]
) -> None:
    make_voice("Ada")

    post(api)
    post(client_of(make_user()))

    assert RenderJob.objects.count() == 2


def test_new_version_of_the_voice_is_heard_at_once(api: APIClient) -> None:
    voice = make_voice("Ada")

    post(api)
    make_version(voice)
    post(api)

    assert RenderJob.objects.count() == 2


def test_recent_success_is_answered_again_and_an_old_one_is_not(
    api: APIClient, settings: Settings
) -> None:
    make_voice("Ada")
    post(api)
    job = RenderJob.objects.get()
    finish(job)

    again = post(api)
    RenderJob.objects.update(finished_at=timezone.now() - dt.timedelta(seconds=601))
    later = post(api)

    assert (again.status_code, b"".join(again)) == (200, b"0123456789")
    assert again.headers["Content-Type"] == "audio/mpeg"
    assert again.headers["TTS-Job-Id"] == str(job.pk)
    assert later.headers["TTS-Job-Id"] != str(job.pk)
    assert RenderJob.objects.count() == 2


@pytest.mark.parametrize(
    "fate",
    [
        {"status": Status.FAILED}, {"status": Status.CANCELLED}, {"status": Status.PARTIAL},
        {"cancel_requested": True},
    ],
)  # fmt: skip
def test_job_that_did_not_succeed_is_not_joined(api: APIClient, fate: dict[str, Any]) -> None:
    make_voice("Ada")
    post(api)
    RenderJob.objects.update(finished_at=timezone.now(), **fate)

    post(api)

    assert RenderJob.objects.count() == 2


def test_job_whose_file_is_gone_is_not_joined(api: APIClient) -> None:
    make_voice("Ada")
    post(api)
    job = RenderJob.objects.get()
    finish(job)
    default_storage.delete(job.exports.get().key)

    assert post(api).status_code == 503
    assert RenderJob.objects.count() == 2


def test_key_of_the_client_decides_what_is_the_same(api: APIClient) -> None:
    make_voice("Ada")
    body = {"model": "tts-1", "input": "Hello.", "voice": "Ada"}

    answers = [
        api.post(URL, body, format="json", headers={"Idempotency-Key": key}) for key in "aab"
    ]
    other = api.post(URL, body | {"input": "Bye."}, format="json", headers={"Idempotency-Key": "a"})

    ids = [answer.headers["TTS-Job-Id"] for answer in answers]
    assert ids[0] == ids[1] != ids[2]
    assert (other.status_code, error_of(other)["code"]) == (422, "idempotency_key_reused")


def test_result_as_events_holds_the_file_and_the_usage(api: APIClient, operator: User) -> None:
    job = make_ended_job(operator, format="mp3")
    content = bytes(range(256)) * 500
    key = default_storage.save("exports/long", ContentFile(content))
    job.exports.update(key=key)

    answer = api.get(f"{URL}/{job.pk}?stream_format=sse")

    lines = b"".join(answer).decode().strip().split("\n\n")
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    kinds = [event["type"] for event in events]
    sound = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert kinds == ["speech.audio.delta"] * 3 + ["speech.audio.done"]
    assert sound == content
    assert events[-1]["usage"] == {
        "input_tokens": len(job.text),
        "output_tokens": 20,
        "total_tokens": len(job.text) + 20,
    }


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"status": Status.QUEUED}, 504, "job_not_finished"),
        ({"status": Status.RUNNING}, 504, "job_not_finished"),
        ({"status": Status.FAILED, "error_code": "voice_deleted"}, 500, "voice_deleted"),
        ({"status": Status.PARTIAL, "error_code": "segments_failed"}, 500, "segments_failed"),
        ({"status": Status.CANCELLED}, 409, "job_cancelled"),
    ],
)
def test_job_without_audio_is_named_and_not_tried_again(
    api: APIClient, operator: User, fields: dict[str, Any], status: int, code: str
) -> None:
    job = make_ended_job(operator)
    RenderJob.objects.update(**fields)

    answer = api.get(f"{URL}/{job.pk}")

    assert (answer.status_code, error_of(answer)["code"]) == (status, code)
    assert str(job.pk) in error_of(answer)["message"]
    assert answer.headers["x-should-retry"] == "false"
    assert THEN_HEADER not in answer.headers


def test_file_that_is_gone_is_a_410(api: APIClient, operator: User) -> None:
    job = make_ended_job(operator)
    default_storage.delete(job.exports.get().key)

    for stream_format in ("audio", "sse"):
        answer = api.get(f"{URL}/{job.pk}?stream_format={stream_format}")
        assert (answer.status_code, error_of(answer)["code"]) == (410, "audio_gone")


def test_result_of_another_user_is_a_404(
    api: APIClient, client_of: Callable[[User], APIClient], operator: User
) -> None:
    job = make_ended_job(make_user())

    assert error_of(api.get(f"{URL}/{job.pk}"))["code"] == "job_not_found"


def test_without_waiting_the_first_answer_is_the_last(
    api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_voice("Ada")
    monkeypatch.setattr("synth.openai.speech_views.OPENAI_WAIT_SECONDS", 0.0)

    answer = post(api)

    assert (answer.status_code, error_of(answer)["code"]) == (504, "job_not_finished")
    assert THEN_HEADER not in answer.headers


def test_error_that_nobody_foresaw_has_the_same_form(
    api: APIClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: object, **named: object) -> None:
        raise RuntimeError("surprise")

    make_voice("Ada")
    monkeypatch.setattr(speech_views, "order_speech", fail)

    answer = post(api)

    assert (answer.status_code, error_of(answer)["type"]) == (500, "server_error")
    assert "surprise" not in answer.content.decode() and "surprise" in caplog.text
