"""Transcripts are proposed over REST where a transcriber is set up, and are not kept long."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import SimpleUploadedFile
from pytest_django import Settings
from rest_framework.test import APIClient

from tests.factories import hold_row, make_transcript, make_user
from tests.voices.clips import CLIP, Listing, voice_fields
from voices.models import Transcript, Voice
from voices.objects import KEPT, forget_transcripts
from voices.submit import MOST_WAITING
from voices.transitions import fail_transcript, finish_transcript

pytestmark = pytest.mark.django_db(transaction=True)
URL = "/api/v1/transcripts"


@pytest.fixture(autouse=True)
def transcriber(settings: Settings) -> None:
    settings.TRANSCRIBER = "tests.workers.rendering.plugged:parrot"


def post(client: APIClient, content: bytes = CLIP, **fields: Any) -> Any:
    form = {"audio": SimpleUploadedFile("clip.wav", content), **fields}
    return client.post(URL, form, format="multipart")


def test_clip_waits_for_a_worker_and_its_words_are_shown_when_they_are_there(
    client: APIClient, stored_objects: Listing, message_folder: Any
) -> None:
    answer = post(client, language="en-GB")
    shown = answer.json()

    assert (answer.status_code, answer["Location"]) == (202, f"{URL}/{shown['id']}")
    assert (shown["status"], shown["language"], shown["text"]) == ("queued", "en-GB", "")
    assert len(stored_objects()) == 1 and len(list(message_folder.iterdir())) == 1

    row = Transcript.objects.get()
    assert finish_transcript(hold_row(Transcript, row.pk), "what is said")
    shown = client.get(answer["Location"]).json()
    assert (shown["status"], shown["text"], shown["error_code"]) == ("done", "what is said", "")
    assert stored_objects() == []
    assert not Voice.objects.exists()


def test_failure_is_shown_and_the_clip_goes(client: APIClient, stored_objects: Listing) -> None:
    place = post(client)["Location"]
    claim = hold_row(Transcript, Transcript.objects.get().pk)

    assert fail_transcript(claim, code="not_heard", message="Nothing was heard.")
    assert not finish_transcript(claim, "too late")

    shown = client.get(place).json()
    assert (shown["status"], shown["error_code"], shown["text"]) == ("failed", "not_heard", "")
    assert stored_objects() == []


def test_without_a_transcriber_it_is_said_what_is_missing(
    client: APIClient, settings: Settings, stored_objects: Listing
) -> None:
    settings.TRANSCRIBER = ""
    answer = post(client)

    assert (answer.status_code, answer.json()["code"]) == (409, "transcriber_missing")
    assert "send the words" in answer.json()["detail"]
    assert stored_objects() == [] and not Transcript.objects.exists()


@pytest.mark.parametrize(
    ("content", "fields", "status", "code"),
    [
        (b"", {}, 400, "clip_empty"),
        (b"no sound", {}, 400, "clip_not_audio"),
        (CLIP, {"language": "???"}, 400, "invalid"),
        (CLIP, {"name": "Ada"}, 400, "unknown_field"),
    ],
)
def test_what_is_no_clip_is_refused(
    client: APIClient, content: bytes, fields: dict[str, str], status: int, code: str
) -> None:
    answer = post(client, content, **fields)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert not Transcript.objects.exists()


def test_one_user_has_few_clips_waiting(client: APIClient, operator: User) -> None:
    for _ in range(MOST_WAITING):
        make_transcript(operator)
    refused = post(client)
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_transcripts")
    assert refused["Retry-After"]

    Transcript.objects.update(owner=make_user("another"))
    assert post(client).status_code == 202


def test_proposals_and_clips_of_an_hour_ago_are_forgotten(
    client: APIClient, operator: User, stored_objects: Listing
) -> None:
    post(client)
    kept = make_transcript(operator)
    old = Transcript.objects.exclude(pk=kept.pk)
    old.update(created_at=kept.created_at - KEPT - dt.timedelta(seconds=1))
    assert len(stored_objects()) == 1

    assert forget_transcripts() == 1
    assert list(Transcript.objects.all()) == [kept]
    assert stored_objects() == []


def test_full_disk_keeps_no_row(client: APIClient, full_disk: None) -> None:
    assert post(client).status_code == 507
    assert not Transcript.objects.exists()


@pytest.mark.parametrize(("name", "is_told"), [("a.b:c", True), ("", False)])
def test_voice_without_a_transcript_is_told_who_can_propose_one(
    client: APIClient, settings: Settings, name: str, is_told: bool
) -> None:
    settings.TRANSCRIBER = name
    answer = client.post("/api/v1/voices", voice_fields(transcript=""), format="multipart")
    assert (answer.status_code, answer.json()["code"]) == (400, "transcript_required")
    assert ("POST /api/v1/transcripts" in answer.json()["detail"]) == is_told
    assert not default_storage.exists("clips")
