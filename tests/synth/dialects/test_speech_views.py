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
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from pytest_django import Settings
from rest_framework.test import APIClient

from synth import telemetry
from synth.accounts.access import create_key
from synth.dialects import speech_calls
from synth.dialects.speech_wait import THEN_HEADER
from synth.formats import FORMATS
from synth.live.pipeline import LiveOptions
from synth.live.streams import LIVE_HEADER
from synth.models import RenderJob, Segment
from tests.answers import refusal_of
from tests.factories import make_ended_job, make_export, make_user, make_version, make_voice
from voices.models import Voice, VoiceVersion

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("ada")]

URL = "/v1/audio/speech"
Status = RenderJob.Status


@pytest.fixture
def ada(job_services: None) -> Voice:
    """A voice that everybody may use."""
    return make_voice("Ada")


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


def test_span_of_a_request_whose_audio_is_waited_for_is_no_error(
    operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry._Tracing, "provider", provider)
    _, key = create_key(operator, "key")

    post(APIClient(HTTP_AUTHORIZATION=f"Bearer {key}"))  # it makes its middleware for itself

    (span,) = exporter.get_finished_spans()
    assert span.attributes is not None
    assert span.attributes["http.response.status_code"] == 202
    assert span.attributes["ttsweb.job_id"] == str(RenderJob.objects.get().pk)
    assert span.status.status_code is not StatusCode.ERROR


def test_request_makes_a_job_that_remembers_everything(
    api: APIClient, operator: User, ada: Voice, caplog: pytest.LogCaptureFixture
) -> None:
    answer = post(api, response_format="opus", speed=1.5, stream_format="sse")

    job = RenderJob.objects.get()
    assert (job.text, job.format, job.speed) == ("Hello there.", "opus", 1.5)
    assert (job.owner, job.api_key) == (operator, operator.api_keys.get())
    assert job.voices.get().version == ada.current_version
    seconds, job_id, address = answer.headers[THEN_HEADER].split(" ")
    assert (float(seconds), job_id) == (300.0, str(job.pk))
    assert address == f"{URL}/{job.pk}?stream_format=sse"
    assert (answer.status_code, error_of(answer)["code"]) == (503, "too_many_waiting")
    assert str(job.pk) in error_of(answer)["message"]
    assert answer.headers["Retry-After"] and "x-should-retry" not in answer.headers
    assert "Service Unavailable" not in caplog.text  # it is seldom the last answer
    post(api)
    assert RenderJob.objects.get(speed=1.0).format == "mp3"


@pytest.mark.parametrize("speed", [1.0, 1.5])
def test_every_format_at_any_speed_is_sent_while_it_is_rendered(
    api: APIClient, speed: float
) -> None:
    for form in FORMATS:
        answer = post(api, response_format=form, speed=speed)

        job = RenderJob.objects.get(format=form)
        assert LiveOptions.from_header(answer.headers[LIVE_HEADER]) == LiveOptions.of(job), form
        assert job.live_requested_at is not None, form


def test_ends_of_the_range_of_speeds_and_instructions_that_say_nothing_are_taken(
    api: APIClient,
) -> None:
    for speed in (0.25, 4, 1.0):
        assert post(api, speed=speed).status_code == 503, speed
        assert RenderJob.objects.filter(speed=speed).count() == 1, speed
    for nothing in ("", "   ", None):
        assert post(api, instructions=nothing).status_code == 503, nothing


WRONG: list[tuple[str, object, int, str]] = [
    ("input", 5, 400, "invalid"), ("input", ["a"], 400, "invalid"),
    ("input", "x" * 4097, 400, "input_too_long"), ("input", "a\0b", 400, "text_not_text"),
    ("model", 5, 400, "invalid"), ("model", "x" * 201, 400, "max_length"),
    ("voice", "Nobody", 404, "voice_not_found"),
    ("voice", 5, 400, "invalid"), ("voice", {}, 400, "invalid"),
    ("voice", {"id": 5}, 400, "invalid"), ("voice", {"name": "Ada"}, 400, "invalid"),
    ("voice", {"id": "Ada", "x": 1}, 400, "invalid"), ("voice", ["Ada"], 400, "invalid"),
    ("voice", "a\0", 400, "invalid"), ("voice", "x" * 101, 400, "invalid"),
    ("response_format", "ogg", 400, "invalid_choice"),
    ("response_format", ["mp3"], 400, "invalid_choice"),
    ("speed", 0.24, 400, "out_of_range"), ("speed", 4.01, 400, "out_of_range"),
    ("speed", "1", 400, "invalid"), ("speed", True, 400, "invalid"),
    ("stream_format", "mp3", 400, "invalid_choice"), ("stream", "yes", 400, "invalid"),
    ("seed", 1.5, 400, "invalid"), ("seed", 2**63, 400, "out_of_range"),
    ("temperature", 0, 400, "out_of_range"), ("temperature", "hot", 400, "invalid"),
    ("top_p", 1.5, 400, "out_of_range"), ("top_k", 65, 400, "out_of_range"),
    ("ref_audio", 5, 400, "not_a_data_url"), ("ref_audio", "/etc/passwd", 400, "not_a_data_url"),
    ("ref_audio", "data:audio/wav;base64,?", 400, "not_base64"),
    ("ref_audio", "https://example.org/a.wav", 400, "url_references_off"),
]  # fmt: skip
WRONG_IF_STRICT: list[tuple[str, object, int, str]] = [
    ("input", "", 400, "text_empty"), ("input", "  \n", 400, "text_empty"),
    ("input", ".", 400, "text_unspeakable"), ("input", None, 400, "null"),
    ("model", "gpt-5", 404, "model_not_found"), ("model", "", 404, "model_not_found"),
    ("voice", "alloy", 404, "voice_not_found"), ("voice", "", 400, "invalid"),
    ("voice", None, 400, "null"), ("speed", None, 400, "null"),
    ("instructions", "Whisper.", 400, "instructions_not_supported"),
    ("instructions", 5, 400, "invalid"), ("seed", -1, 400, "out_of_range"),
    ("backend", "piper", 400, "unknown_field"), ("lang_code", "a", 400, "unknown_field"),
    ("extra_body", {"seed": 5}, 400, "unknown_field"), ("language", "?", 400, "language_invalid"),
]  # fmt: skip


def test_wrong_value_is_refused_with_its_name_and_no_job(
    api: APIClient, settings: Settings
) -> None:
    lenient, strict = [(False, row) for row in WRONG], [(True, row) for row in WRONG]
    strict += [(True, row) for row in WRONG_IF_STRICT]
    for is_strict, (field, value, status, code) in (*lenient, *strict):
        settings.OPENAI_STRICT = is_strict
        fields: dict[str, Any] = {field: value}
        if field == "ref_audio":
            fields |= {"ref_text": "Its words."}
        answer = post(api, **fields)
        error = error_of(answer)
        found = (answer.status_code, error["code"], error["param"])
        param = field if code not in ("text_unspeakable", "text_empty") else "input"
        assert found == (status, code, param), (is_strict, field, value)
        assert error["type"] == "invalid_request_error", (is_strict, field, value)
        assert answer.headers["x-should-retry"] == "false", (is_strict, field, value)
    assert not RenderJob.objects.exists()


def test_half_of_a_surrogate_pair_is_refused_or_ignored_and_no_server_error(
    api: APIClient, settings: Settings
) -> None:
    for field in ("input", "voice", "model", "instructions", "speed", "\ud800"):
        values = {"model": "tts-1", "input": "Hello.", "voice": "Ada", field: "\ud800"}
        for is_strict in (True, False):
            settings.OPENAI_STRICT = is_strict
            answer = api.generic("POST", URL, json.dumps(values), content_type="application/json")
            if is_strict or field in ("voice", "model", "speed"):
                assert answer.status_code == 400, (is_strict, field)
                assert error_of(answer)["param"] in (field, "?"), field
            else:  # no word to speak, or a field that is ignored
                assert answer.status_code in (200, 503), (is_strict, field)


def test_body_that_is_no_object_and_a_missing_field_are_a_400(
    api: APIClient, settings: Settings
) -> None:
    for body in ("", "{", "[]", "null", '"x"', '{"speed": NaN}', "[" * 50_000):
        answer = api.generic("POST", URL, body, content_type="application/json")
        assert answer.status_code == 400, body[:20]
        error_of(answer)
    for is_strict, field in (
        (False, "input"),
        *((True, one) for one in ("model", "input", "voice")),
    ):
        settings.OPENAI_STRICT = is_strict
        answer = post(api, without=field)
        assert (answer.status_code, error_of(answer)["param"]) == (400, field), field


def test_text_that_is_too_long_is_sent_to_the_jobs(
    api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synth.dialects.openai_speech.OPENAI_MAX_INPUT_CHARS", 5)

    error = error_of(post(api, input="123456"))

    assert "5 are allowed" in error["message"] and "POST /api/v1/jobs" in error["message"]
    assert post(api, input="12345").status_code == 503


def test_voice_is_taken_by_id_alone_or_in_an_object_and_in_any_case(
    api: APIClient, ada: Voice
) -> None:
    for named in (str(ada.pk), {"id": str(ada.pk)}, "aDA"):
        assert post(api, voice=named).status_code == 503, named

    assert RenderJob.objects.get().voices.get().version.voice == ada


@pytest.mark.parametrize(
    ("status", "answer_status", "code"),
    [
        (VoiceVersion.Status.PENDING, 409, "voice_not_ready"),
        (VoiceVersion.Status.FAILED, 409, "voice_failed"),
    ],
)
def test_voice_that_is_not_encoded_yet_may_be_tried_again_and_one_that_failed_not(
    api: APIClient, status: str, answer_status: int, code: str
) -> None:
    make_version(make_voice("Bob", versions=0), status=status)

    answer = post(api, voice="Bob")

    assert (answer.status_code, error_of(answer)["code"]) == (answer_status, code)
    is_pending = code == "voice_not_ready"
    assert ("Retry-After" in answer.headers) == is_pending
    assert answer.headers.get("x-should-retry") == (None if is_pending else "false")


def test_same_request_joins_the_job_that_goes_on_and_another_makes_its_own(
    api: APIClient, client_of: Callable[[User], APIClient], ada: Voice
) -> None:
    make_voice("Bob")
    first = post(api)
    second = post(api, stream_format="sse", instructions="", model="tts-1-hd")
    assert first.headers["TTS-Job-Id"] == second.headers["TTS-Job-Id"]
    assert RenderJob.objects.count() == Segment.objects.count() == 1

    others = ({"input": "Hello."}, {"speed": 1.1}, {"response_format": "wav"}, {"voice": "Bob"})
    for other in others:
        post(api, **other)
    post(client_of(make_user()))
    make_version(ada)  # which is heard at once
    post(api)
    assert RenderJob.objects.count() == 1 + len(others) + 2


def test_recent_success_is_answered_again_and_one_that_is_old_or_has_no_file_is_not(
    api: APIClient,
) -> None:
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
    other = RenderJob.objects.exclude(pk=job.pk).get()
    finish(other)
    default_storage.delete(other.exports.get().key)
    assert post(api).status_code == 503
    assert RenderJob.objects.count() == 3


def test_job_that_did_not_succeed_is_not_joined(api: APIClient) -> None:
    fates: list[dict[str, Any]] = [
        {"status": status} for status in (Status.FAILED, Status.CANCELLED, Status.PARTIAL)
    ]
    for number, fate in enumerate([*fates, {"cancel_requested": True}], 1):
        post(api)
        assert RenderJob.objects.count() == number, fate
        RenderJob.objects.update(finished_at=timezone.now(), **fate)
    post(api)
    assert RenderJob.objects.count() == len(fates) + 2


def test_key_of_the_client_decides_what_is_the_same(api: APIClient) -> None:
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
        assert refusal_of(answer) == (410, "audio_gone"), stream_format


def test_without_waiting_the_first_answer_is_the_last(
    api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synth.dialects.speech_wait.OPENAI_WAIT_SECONDS", 0.0)

    answer = post(api)

    assert (answer.status_code, error_of(answer)["code"]) == (504, "job_not_finished")
    assert THEN_HEADER not in answer.headers


def test_error_that_nobody_foresaw_has_the_same_form(
    api: APIClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: object, **named: object) -> None:
        raise RuntimeError("surprise")

    monkeypatch.setattr(speech_calls, "order_speech", fail)

    answer = post(api)

    assert (answer.status_code, error_of(answer)["type"]) == (500, "server_error")
    assert "surprise" not in answer.content.decode() and "surprise" in caplog.text
