"""Requests for jobs: what is taken, what is refused and how."""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart
from pytest_django import Settings
from rest_framework.test import APIClient

from synth.models import RenderJob
from tests.answers import refusal_of
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


WRONG: dict[str, list[Any]] = {
    "text": [5, ["a"], True, {}],
    "voice": [5, ["Ada"], "x" * 101, "a\0"],
    "seed": [-1, 2**63, 1.5, "1", True, 10**400],
    "temperature": [0, 2, -1, "0.7", True, [0.7]],
    "top_p": [0, 1.001, False],
    "top_k": [0, 65, 2.0, "5"],
    "speed": [0.24, 4.01, "1", True, [1]],
    "format": ["ogg", 5, ["wav"], ""],
    "priority": ["urgent", 0],
    "reference": ["data:audio/wav;base64,AAAA", []],
}


@pytest.mark.parametrize("field", WRONG)
def test_wrong_value_is_a_400_that_names_the_field(api: APIClient, field: str) -> None:
    make_voice("Ada")

    for value in WRONG[field]:
        response = post(api, **{"voice": "Ada", field: value})
        assert response.status_code == 400, value
        assert response.json()["errors"][0]["attr"].split(".")[0] == field
    assert not RenderJob.objects.exists()


@pytest.mark.parametrize("name", ["temperature", "seed", "top_p", "top_k", "speed"])
def test_number_that_is_none_is_a_400(api: APIClient, name: str) -> None:
    make_voice("Ada")
    for number in ("NaN", "Infinity", "-Infinity", "1e999", "null"):
        body = f'{{"text": "Hello.", "voice": "Ada", "{name}": {number}}}'
        assert post_raw(api, body).status_code == 400, number


def test_body_that_is_no_object_in_utf8_is_a_400(api: APIClient) -> None:
    for body in ("", "{", "[]", '"x"', "5", "null", "[" * 100_000):
        assert post_raw(api, body).status_code == 400, body[:9]
    answer = api.post(URL, b'{"text": "\xff"}', content_type="application/json")
    assert answer.status_code == 400


def test_field_that_is_not_acted_on_is_refused(api: APIClient) -> None:
    make_voice("Ada")
    for name in ("timestamps", "id", "status", "reference_audio", "owner"):
        fields: dict[str, Any] = {"voice": "Ada", name: "x"}
        response = post(api, **fields)
        assert (response.status_code, response.json()["code"]) == (400, "unknown_field"), name


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


def test_half_of_a_surrogate_pair_is_refused_and_no_server_error(api: APIClient) -> None:
    make_voice("Ada")

    assert post_raw(api, r'{"text": "\ud800 x", "voice": "Ada"}').json()["code"] == "text_not_text"
    assert post_raw(api, r'{"text": "x", "voice": "\ud800"}').status_code == 400
    named = post_raw(api, r'{"text": "x", "voice": "Ada", "\ud800": 1}')
    assert (named.status_code, named.json()["code"]) == (400, "unknown_field")


def data_url(content: bytes) -> str:
    return f"data:audio/wav;base64,{base64.b64encode(content).decode()}"


def test_reference_takes_the_place_of_a_voice(api: APIClient) -> None:
    response = post(api, reference={"audio": data_url(clip_bytes("wav")), "text": "Hello."})

    assert response.status_code == 202
    assert response.json()["voices"] == [
        {"speaker": 0, "role": "", "id": None, "name": None, "version": 1}
    ]
    assert VoiceVersion.objects.get().clips.get().transcript == "Hello."
    fields = {"text": TEXT, "seed": "9", "temperature": "0.5", "reference_text": "Hi."}
    file = SimpleUploadedFile("ada.flac", clip_bytes("flac"))
    response = api.post(URL, fields | {"reference_audio": file}, format="multipart")
    assert response.status_code == 202
    assert (response.json()["seed"], response.json()["temperature"]) == (9, 0.5)
    assert VoiceVersion.objects.filter(clips__filename="ada.flac").count() == 1


def test_number_in_a_form_must_be_spelled_as_one(api: APIClient) -> None:
    make_voice("Ada")
    for name, value in (
        *(("seed", "1.5"), ("seed", "१"), ("temperature", "nan"), ("temperature", "1_0")),
        *(("temperature", " "), ("top_k", "9" * 40)),
    ):
        form = {"text": TEXT, "voice": "Ada", name: value}
        response = api.post(URL, form, format="multipart")
        assert (response.status_code, response.json()["code"]) == (400, "invalid"), value


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


def test_voice_beside_a_reference_and_the_text_of_a_clip_that_is_not_sent_are_refused(
    api: APIClient,
) -> None:
    make_voice("Ada")
    reference = {"audio": data_url(clip_bytes("wav")), "text": "Hello."}
    form = {"text": TEXT, "reference_text": "Hello."}

    both, alone = (
        post(api, voice="Ada", reference=reference),
        api.post(URL, form, format="multipart"),
    )

    assert (both.json()["code"], alone.json()["code"]) == ("voice_ambiguous", "clip_required")


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


def test_key_that_cannot_be_used_is_refused(api: APIClient) -> None:
    make_voice("Ada")
    for key in ("", "x" * 256, "tab\there", "é"):
        response = post(api, {"Idempotency-Key": key}, voice="Ada")
        assert (response.status_code, response.json()["code"]) == (400, "idempotency_key_invalid")
    assert post(api, {"Idempotency-Key": "x" * 255}, voice="Ada").status_code == 202


@pytest.mark.parametrize(
    ("path", "body", "media_type", "refused"),
    [
        pytest.param(
            f"/api/v1/books/{uuid.uuid4()}/files",
            "{",
            "application/json",
            (404, "book_not_found"),
            id="file of a book that is not there",
        ),
        pytest.param(
            "/api/v1/batches?unknown=1",
            "x" * 2000,
            "application/x-ndjson",
            (400, "unknown_field"),
            id="batch with a wrong query and too long a body",
        ),
        pytest.param(
            URL,
            encode_multipart(BOUNDARY, {"text": TEXT, "unknown": "1"}).decode(),
            MULTIPART_CONTENT,
            (400, "unknown_field"),
            id="job with a wrong field",
        ),
    ],
)
def test_refused_request_is_not_hashed_and_is_refused_alike_with_a_key(
    api: APIClient,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    body: str,
    media_type: str,
    refused: tuple[int, str],
) -> None:
    settings.MAX_BATCH_BYTES = 1000
    hashed: list[Any] = []
    monkeypatch.setattr("synth.api.jobs.requests.digest_of_body", hashed.append)

    answers = [
        api.generic("POST", path, body, content_type=media_type, headers=headers)
        for headers in ({}, {"Idempotency-Key": "abc"})
    ]

    assert [refusal_of(answer) for answer in answers] == [refused] * 2
    assert hashed == []
