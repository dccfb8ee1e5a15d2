"""Requests for jobs: what is taken, what is refused and how."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from pytest_django import Settings
from rest_framework.test import APIClient

from synth.models import RenderJob
from tests.factories import make_voice
from tests.voices.clips import clip_bytes
from voices.models import VoiceVersion

pytestmark = pytest.mark.django_db(transaction=True)

URL = "/api/v1/jobs"
TEXT = "The first sentence of this text. The second sentence of it."


def post(api: APIClient, headers: dict[str, str] | None = None, **fields: Any) -> Any:
    """Post a job in JSON; None leaves a field out."""
    values = {"text": TEXT} | fields
    body = {name: value for name, value in values.items() if value is not None}
    return api.post(URL, body, format="json", headers=headers)


def post_raw(api: APIClient, body: str, **headers: str) -> Any:
    return api.generic("POST", URL, body, content_type="application/json", headers=headers)


def test_job_is_accepted_with_where_to_look_and_when(api: APIClient, operator: User) -> None:
    voice = make_voice("Ada")

    response = post(api, voice="ada", seed=7, top_k=5, format="mp3", priority="bulk")

    shown = response.json()
    assert response.status_code == 202
    assert response.headers["Location"] == f"/api/v1/jobs/{shown['id']}"
    assert int(response.headers["Retry-After"]) > 0
    assert shown["status"] == "queued"
    assert shown["progress"] == 0
    assert shown["queue_position"] == 1
    assert shown["voices"] == [
        {"speaker": 0, "role": "", "id": str(voice.pk), "name": "Ada", "version": 1}
    ]
    assert (shown["seed"], shown["top_k"], shown["format"]) == (7, 5, "mp3")
    assert (shown["temperature"], shown["top_p"]) == (0.7, 0.9)
    assert (shown["priority"], shown["audio_url"]) == ("bulk", None)
    assert (shown["text"], shown["segments_total"]) == (TEXT, 2)
    job = RenderJob.objects.get()
    assert (job.owner, job.api_key) == (operator, operator.api_keys.get())


@pytest.mark.parametrize("speed", [0.25, 1, 4])
def test_speed_is_kept_and_shown(api: APIClient, speed: float) -> None:
    make_voice("Ada")

    shown = post(api, voice="Ada", speed=speed, format="aac").json()

    assert (shown["speed"], shown["format"]) == (speed, "aac")
    assert RenderJob.objects.get().speed == speed


def test_request_without_a_key_is_a_401(job_services: None) -> None:
    for response in (APIClient().get(URL), post(APIClient(), voice="Ada")):
        assert response.status_code == 401
        assert response.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text", 5), ("text", ["a"]), ("text", True), ("text", {}),
        ("voice", 5), ("voice", ["Ada"]), ("voice", "x" * 101), ("voice", "a\0"),
        ("seed", -1), ("seed", 2**63), ("seed", 1.5), ("seed", "1"), ("seed", True),
        ("seed", 10**400),
        ("temperature", 0), ("temperature", 2), ("temperature", -1), ("temperature", "0.7"),
        ("temperature", True), ("temperature", [0.7]),
        ("top_p", 0), ("top_p", 1.001), ("top_p", False),
        ("top_k", 0), ("top_k", 65), ("top_k", 2.0), ("top_k", "5"),
        ("speed", 0.24), ("speed", 4.01), ("speed", "1"), ("speed", True), ("speed", [1]),
        ("format", "ogg"), ("format", 5), ("format", ["wav"]), ("format", ""),
        ("priority", "urgent"), ("priority", 0),
        ("reference", "data:audio/wav;base64,AAAA"), ("reference", []),
    ],
)  # fmt: skip
def test_wrong_value_is_a_400_that_names_the_field(
    api: APIClient, field: str, value: object
) -> None:
    make_voice("Ada")

    fields: dict[str, Any] = {"voice": "Ada", field: value}
    response = post(api, **fields)

    problem = response.json()
    assert response.status_code == 400
    assert problem["errors"][0]["attr"].split(".")[0] == field
    assert not RenderJob.objects.exists()


@pytest.mark.parametrize("name", ["temperature", "seed", "top_p", "top_k", "speed"])
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "null"])
def test_number_that_is_none_is_a_400(api: APIClient, name: str, number: str) -> None:
    make_voice("Ada")

    response = post_raw(api, f'{{"text": "Hello.", "voice": "Ada", "{name}": {number}}}')

    assert response.status_code == 400


@pytest.mark.parametrize("body", ["", "{", "[]", '"x"', "5", "null", "[" * 100_000])
def test_body_that_is_no_object_is_a_400(api: APIClient, body: str) -> None:
    assert post_raw(api, body).status_code == 400


@pytest.mark.parametrize("name", ["timestamps", "id", "status", "reference_audio", "owner"])
def test_field_that_is_not_acted_on_is_refused(api: APIClient, name: str) -> None:
    make_voice("Ada")

    fields: dict[str, Any] = {"voice": "Ada", name: "x"}
    response = post(api, **fields)

    assert response.status_code == 400
    assert response.json()["code"] == "unknown_field"


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"text": None, "voice": "Ada"}, 400, "required"),
        ({"text": "", "voice": "Ada"}, 400, "text_empty"),
        ({"text": "a\0b", "voice": "Ada"}, 400, "text_not_text"),
        ({"text": "* * *", "voice": "Ada"}, 400, "text_unspeakable"),
        ({"text": "x" * 200_001, "voice": "Ada"}, 413, "text_too_long"),
        ({}, 400, "voice_required"),
        ({"voice": ""}, 400, "voice_required"),
        ({"voice": "Bob"}, 404, "voice_not_found"),
        ({"voice": "Slow"}, 409, "voice_not_ready"),
        ({"voice": "Bad"}, 409, "voice_failed"),
    ],
)
def test_bad_text_and_voice_have_codes_of_their_own(
    api: APIClient, fields: dict[str, Any], status: int, code: str
) -> None:
    make_voice("Ada")
    make_voice("Slow", ready=False)
    make_voice("Bad").versions.update(status="failed", error_message="Only silence.")

    response = post(api, **fields)

    assert (response.status_code, response.json()["code"]) == (status, code)
    assert response.headers["Content-Type"] == "application/problem+json"
    assert ("Retry-After" in response.headers) == (code == "voice_not_ready")


def test_body_that_is_not_utf8_is_a_400(api: APIClient) -> None:
    response = api.post(URL, b'{"text": "\xff"}', content_type="application/json")

    assert response.status_code == 400


def test_half_of_a_surrogate_pair_is_refused_and_no_server_error(api: APIClient) -> None:
    make_voice("Ada")

    assert post_raw(api, r'{"text": "\ud800 x", "voice": "Ada"}').json()["code"] == "text_not_text"
    assert post_raw(api, r'{"text": "x", "voice": "\ud800"}').status_code == 400
    named = post_raw(api, r'{"text": "x", "voice": "Ada", "\ud800": 1}')
    assert (named.status_code, named.json()["code"]) == (400, "unknown_field")


def data_url(content: bytes) -> str:
    return f"data:audio/wav;base64,{base64.b64encode(content).decode()}"


def test_reference_in_json_takes_the_place_of_a_voice(api: APIClient) -> None:
    response = post(api, reference={"audio": data_url(clip_bytes("wav")), "text": "Hello."})

    assert response.status_code == 202
    assert response.json()["voices"] == [
        {"speaker": 0, "role": "", "id": None, "name": None, "version": 1}
    ]
    assert VoiceVersion.objects.get().clips.get().transcript == "Hello."


def test_reference_as_a_file_takes_the_place_of_a_voice(api: APIClient) -> None:
    fields = {
        "text": TEXT,
        "seed": "9",
        "temperature": "0.5",
        "reference_audio": SimpleUploadedFile("ada.flac", clip_bytes("flac")),
        "reference_text": "Hello.",
    }

    response = api.post(URL, fields, format="multipart")

    assert response.status_code == 202
    assert (response.json()["seed"], response.json()["temperature"]) == (9, 0.5)
    assert VoiceVersion.objects.get().clips.get().filename == "ada.flac"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", "1.5"), ("seed", "१"), ("temperature", "nan"), ("temperature", "1_0"),
        ("temperature", " "), ("top_k", "9" * 40),
    ],
)  # fmt: skip
def test_number_in_a_form_must_be_spelled_as_one(api: APIClient, name: str, value: str) -> None:
    make_voice("Ada")

    response = api.post(URL, {"text": TEXT, "voice": "Ada", name: value}, format="multipart")

    assert (response.status_code, response.json()["code"]) == (400, "invalid")


@pytest.mark.parametrize(
    ("reference", "status", "code"),
    [
        ({"audio": data_url(b"some text"), "text": "Hello."}, 400, "clip_not_audio"),
        ({"audio": data_url(b""), "text": "Hello."}, 400, "clip_empty"),
        ({"audio": data_url(clip_bytes("wav")), "text": " "}, 400, "transcript_required"),
        ({"audio": data_url(clip_bytes("wav"))}, 400, "required"),
        ({"text": "Hello."}, 400, "required"),
        ({"audio": "data:audio/wav;base64,%%%%", "text": "Hello."}, 400, "not_base64"),
        ({"audio": "data:audio/wav;base64,AAA", "text": "Hello."}, 400, "not_base64"),
        ({"audio": "data:audio/wav;base64,é", "text": "Hello."}, 400, "not_base64"),
        ({"audio": "https://example.org/a.wav", "text": "Hello."}, 400, "url_references_off"),
        ({"audio": "file:///etc/passwd", "text": "Hello."}, 400, "not_a_data_url"),
        ({"audio": "ftp://example.org/a.wav", "text": "Hello."}, 400, "not_a_data_url"),
        ({"audio": "/etc/passwd", "text": "Hello."}, 400, "not_a_data_url"),
        ({"audio": 5, "text": "Hello."}, 400, "not_a_data_url"),
        ({"audio": data_url(b"x" * 2000), "text": "Hello."}, 413, "clip_too_large"),
        ({"audio": data_url(b"x"), "text": "Hello.", "url": "x"}, 400, "unknown_field"),
    ],
)
def test_bad_reference_is_refused_with_a_code(
    api: APIClient, settings: Settings, reference: object, status: int, code: str
) -> None:
    settings.MAX_CLIP_BYTES = max(len(clip_bytes("wav")), 1000)
    if code == "clip_too_large":
        settings.MAX_CLIP_BYTES = 1000

    response = post(api, reference=reference)

    codes = {error["code"] for error in response.json()["errors"]}
    assert (response.status_code, code in codes) == (status, True), response.json()
    assert not RenderJob.objects.exists()


def test_voice_and_reference_together_are_refused(api: APIClient) -> None:
    make_voice("Ada")

    response = post(
        api, voice="Ada", reference={"audio": data_url(clip_bytes("wav")), "text": "Hello."}
    )

    assert response.json()["code"] == "voice_ambiguous"


def test_text_of_a_reference_without_its_audio_is_refused(api: APIClient) -> None:
    fields = {"text": TEXT, "reference_text": "Hello."}

    assert api.post(URL, fields, format="multipart").json()["code"] == "clip_required"


def test_same_key_and_body_return_the_same_job_which_may_have_ended(api: APIClient) -> None:
    make_voice("Ada")
    key = {"Idempotency-Key": "abc"}

    first = post(api, key, voice="Ada", seed=1)
    again = post_raw(api, json.dumps({"seed": 1, "voice": "Ada", "text": TEXT}), **key)

    assert first.json()["id"] == again.json()["id"]
    assert (first.status_code, again.status_code) == (202, 200)
    assert again.headers["Location"] == first.headers["Location"]
    assert "Retry-After" in again.headers  # the job goes on
    assert RenderJob.objects.count() == 1
    RenderJob.objects.update(status=RenderJob.Status.SUCCEEDED)
    ended = post(api, key, voice="Ada", seed=1)
    assert (ended.status_code, "Location" in ended.headers) == (200, True)


def test_same_form_has_the_same_key_although_its_boundary_differs(api: APIClient) -> None:
    ids = set()
    for filename in ("a.wav", "a.wav"):
        fields = {
            "text": TEXT,
            "reference_audio": SimpleUploadedFile(filename, clip_bytes("wav")),
            "reference_text": "Hello.",
        }
        headers = {"Idempotency-Key": "abc"}
        ids.add(api.post(URL, fields, format="multipart", headers=headers).json()["id"])

    assert len(ids) == 1
    fields["reference_audio"] = SimpleUploadedFile("a.wav", clip_bytes("flac"))
    other = api.post(URL, fields, format="multipart", headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


@pytest.mark.parametrize("key", ["", "x" * 256, "tab\there", "é"])
def test_key_that_cannot_be_used_is_refused(api: APIClient, key: str) -> None:
    make_voice("Ada")

    response = post(api, {"Idempotency-Key": key}, voice="Ada")

    assert (response.status_code, response.json()["code"]) == (400, "idempotency_key_invalid")
    assert post(api, {"Idempotency-Key": "x" * 255}, voice="Ada").status_code == 202
