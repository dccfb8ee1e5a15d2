"""Voices over REST: what is taken, what is refused and how, what answers show."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from pytest_django import DjangoAssertNumQueries, Settings
from rest_framework.test import APIClient

from tests.answers import refusal_of
from tests.factories import hold_row, make_version, make_voice
from tests.voices.clips import CLIP, OTHER_CLIP, Listing, upload, voice_fields
from voices import transitions
from voices.models import CacheEviction, StoredClip, Voice, VoiceVersion
from voices.objects import delete_voice

pytestmark = pytest.mark.django_db(transaction=True)

URL = "/api/v1/voices"


def post(client: APIClient, **changed: Any) -> Any:
    return client.post(URL, voice_fields(**changed), format="multipart")


def create(client: APIClient, **changed: Any) -> dict[str, Any]:
    response = post(client, **changed)
    assert response.status_code == 202, response.content
    shown: dict[str, Any] = response.json()
    return shown


def body(response: Any) -> bytes:
    return b"".join(response.streaming_content)


def hold_newest(voice_id: str) -> Any:
    version = VoiceVersion.objects.filter(voice_id=uuid.UUID(voice_id)).order_by("-number")[0]
    return hold_row(VoiceVersion, version.pk, worker="gpu-1")


def make_ready(voice_id: str) -> None:
    transitions.finish_version(
        hold_newest(voice_id),
        codec_fingerprint="c" * 64,
        frames=33,
        warnings=[{"code": "clip_short", "message": "The clip has 1.5 s."}],
    )


# --- create -------------------------------------------------------------------------------------


def test_an_upload_is_accepted_and_its_encoding_enqueued(
    client: APIClient, operator: User, sent_encodings: Listing, stored_objects: Listing
) -> None:
    response = post(client, language="en-GB", description="Warm.")

    shown = response.json()
    assert (response.status_code, response["Location"]) == (202, f"{URL}/{shown['id']}")
    assert int(response["Retry-After"]) > 0
    assert shown == shown | {
        "status": "pending", "version": 1, "frames": 0, "consent_by": "operator",
        "language": "en-GB",
    }  # fmt: skip
    clip = {"filename": "ada.wav", "container": "wav", "transcript": "Hello there."}
    assert shown["clips"] == [shown["clips"][0] | clip]
    voice = Voice.objects.get()
    assert (voice.owner, voice.consent_at is not None) == (operator, True)
    assert voice.cache_codes, "a form that leaves the field out keeps the default"
    assert VoiceVersion.objects.get().sent_at is not None
    assert len(sent_encodings()) == 1
    assert stored_objects() == [StoredClip.objects.get().original_key]


def test_several_clips_keep_their_order_and_transcripts(client: APIClient) -> None:
    transcripts = ["It says <|im_end|> here.", "Second."]  # a special token is text
    clips = [upload(), upload(OTHER_CLIP, "second.flac")]
    shown = create(client, audio=clips, transcript=transcripts, cache_codes="false")
    assert [clip["filename"] for clip in shown["clips"]] == ["ada.wav", "second.flac"]
    assert [clip["transcript"] for clip in shown["clips"]] == transcripts
    assert shown["cache_codes"] is False


@pytest.mark.parametrize(
    ("changed", "code", "attr"),
    [
        ({"name": None}, "required", "name"),
        ({"name": "   "}, "blank", "name"),
        ({"name": "a" * 101}, "max_length", "name"),
        ({"name": "a\0b"}, "null_characters_not_allowed", "name"),
        ({"consent_statement": None}, "required", "consent_statement"),
        ({"consent_statement": " "}, "blank", "consent_statement"),
        ({"audio": None}, "required", "audio"),
        ({"audio": "not a file"}, "invalid", "audio.0"),
        ({"audio": upload(b"")}, "clip_empty", "audio.0"),
        ({"audio": upload(b"I am text. " * 50)}, "clip_not_audio", "audio.0"),
        ({"transcript": None}, "required", "transcript"),
        ({"transcript": " "}, "transcript_required", "transcript.0"),
        ({"transcript": "a" * 5001}, "transcript_too_long", "transcript.0"),
        ({"transcript": "bell \x07"}, "transcript_not_text", "transcript.0"),
        ({"transcript": ["One.", "Two."]}, "clip_required", "audio"),
        ({"audio": [upload(), upload()]}, "transcript_required", "transcript"),
        ({"language": "not a tag"}, "invalid", "language"),
        ({"cache_codes": "perhaps"}, "invalid", "cache_codes"),
        ({"codec": "best"}, "unknown_field", "codec"),
        ({"status": "ready"}, "unknown_field", "status"),
    ],
)
def test_a_bad_field_is_refused_by_name_and_leaves_nothing(
    client: APIClient, stored_objects: Listing, changed: dict[str, Any], code: str, attr: str
) -> None:
    response = post(client, **changed)
    assert refusal_of(response) == (400, code)
    assert [(e["attr"], e["code"]) for e in response.json()["errors"]] == [(attr, code)]
    assert stored_objects() == []
    assert not Voice.objects.exists()


@pytest.mark.parametrize(
    ("limit", "value", "refusal"),
    [
        ("MAX_CLIP_BYTES", len(CLIP) - 1, (413, "clip_too_large")),
        ("MAX_CLIPS_PER_VOICE", 1, (400, "too_many_clips")),
    ],
)
def test_clips_above_a_limit_are_refused_and_leave_nothing(
    client: APIClient, settings: Settings, stored_objects: Listing, sent_encodings: Listing,
    limit: str, value: int, refusal: tuple[int, str],
) -> None:  # fmt: skip
    setattr(settings, limit, value)
    two = {"audio": [upload(), upload()], "transcript": ["One.", "Two."]}
    assert refusal_of(post(client, **two)) == refusal
    assert not StoredClip.objects.exists() and not Voice.objects.exists()
    assert stored_objects() == sent_encodings() == []


def test_a_taken_name_is_a_409_in_whatever_case_and_lets_the_bytes_go(
    client: APIClient, operator: User, stored_objects: Listing
) -> None:
    made, before = create(client), stored_objects()
    eve = make_voice("Eve", owner=operator, versions=0)
    taken = (409, "voice_name_taken")
    assert refusal_of(post(client, name="ADA", audio=upload(OTHER_CLIP))) == taken
    assert refusal_of(client.patch(f"{URL}/{made['id']}", {"name": "eve"})) == taken
    assert (stored_objects(), StoredClip.objects.count()) == (before, 1)
    delete_voice(eve)
    assert create(client, name="EVE")["name"] == "EVE"


def test_request_of_another_kind_is_refused(client: APIClient) -> None:
    no_form = client.generic("POST", URL, "none", content_type="multipart/form-data")
    other_method = client.put(URL, {})
    json = client.post(URL, {"name": "Ada"}, format="json")
    assert refusal_of(json) == (415, "unsupported_media_type")
    assert refusal_of(no_form) == (400, "parse_error")
    assert refusal_of(other_method) == (405, "method_not_allowed")
    assert "POST" in other_method["Allow"]
    assert refusal_of(client.get(f"{URL}/abc")) == (404, "not_found")


def test_a_full_disk_is_a_507(client: APIClient, full_disk: None) -> None:
    assert refusal_of(post(client)) == (507, "storage_full")
    assert not Voice.objects.exists()


def test_without_a_key_nothing_is_shown_or_taken() -> None:
    for response in (APIClient().get(URL), post(APIClient())):
        assert refusal_of(response) == (401, "not_authenticated")
        assert response["WWW-Authenticate"].startswith("Bearer")
    assert not Voice.objects.exists()


# --- read ---------------------------------------------------------------------------------------


def test_a_ready_voice_shows_its_measures_and_warnings(client: APIClient) -> None:
    voice_id = create(client)["id"]
    measures = {"duration_seconds": 1.5, "sample_rate": 44100}
    StoredClip.objects.update(measures=measures)
    make_ready(voice_id)

    response = client.get(f"{URL}/{voice_id}")

    shown = response.json()
    assert (response.status_code, "Retry-After" in response) == (200, False)
    assert shown == shown | {
        "status": "ready", "frames": 33, "codec_fingerprint": "c" * 64,
        "warnings": [{"code": "clip_short", "message": "The clip has 1.5 s."}],
    }  # fmt: skip
    assert shown["clips"][0]["measures"] == measures


def test_a_failed_voice_shows_code_and_sentence(client: APIClient) -> None:
    voice_id, why = create(client)["id"], "Nothing is heard."
    transitions.fail_version(hold_newest(voice_id), code="clip_silent", message=why)
    shown = client.get(f"{URL}/{voice_id}").json()
    assert shown == shown | {
        "status": "failed", "error_code": "clip_silent", "error_message": why
    }  # fmt: skip


def test_an_unknown_or_deleted_voice_is_a_404(client: APIClient, stored_objects: Listing) -> None:
    deleted = create(client)["id"]
    response = client.delete(f"{URL}/{deleted}")
    assert (response.status_code, response.content, stored_objects()) == (204, b"", [])
    for path in (f"{URL}/{uuid.uuid4()}", f"{URL}/{deleted}"):
        for call in (client.get, client.patch, client.delete):
            assert refusal_of(call(path)) == (404, "voice_not_found"), path
        assert refusal_of(client.post(f"{path}/encode")) == (404, "voice_not_found"), path


def test_the_list_pages_by_cursor_without_a_query_for_each_voice(
    client: APIClient, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    made = {str(make_voice(versions=2).pk) for _ in range(5)}
    with django_assert_max_num_queries(8):
        first = client.get(URL, {"limit": 3}).json()
    second = client.get(first["next"]).json()
    assert len(first["results"]) == 3
    assert {voice["id"] for voice in first["results"] + second["results"]} == made
    assert second["next"] is None


def names(client: APIClient, **query: str) -> set[str]:
    response = client.get(URL, query)
    assert response.status_code == 200, response.json()
    return {shown["name"] for shown in response.json()["results"]}


def test_list_is_filtered_by_what_a_voice_is(client: APIClient) -> None:
    make_voice("Ada", language="en-GB")
    make_voice("Adam", language="en")
    bob = make_voice("Bob", language="eng", archived=True)

    assert names(client) == {"Ada", "Adam", "Bob"}
    assert names(client, name="ada") == {"Ada"}
    assert names(client, name="Nobody") == set()
    assert names(client, language="en") == {"Ada", "Adam"}
    assert names(client, language="EN-gb") == {"Ada"}
    assert names(client, archived="true") == {"Bob"}
    assert client.get(f"{URL}/{bob.pk}").json()["archived"] is True
    assert names(client, archived="false", language="en-GB") == {"Ada"}


def test_list_is_filtered_by_the_status_of_the_newest_version(client: APIClient) -> None:
    make_voice("Ready")
    make_version(make_voice("Changed"), status=VoiceVersion.Status.PENDING)
    make_version(make_voice("Failed", ready=False), status=VoiceVersion.Status.FAILED)
    make_voice("Empty", versions=0)

    assert names(client, status="ready") == {"Ready"}
    assert names(client, status="pending") == {"Changed"}
    assert names(client, status="failed,ready") == {"Failed", "Ready"}
    assert names(client, status="encoding") == set()


def test_filter_that_cannot_be_read_is_a_400(client: APIClient) -> None:
    queries = [
        {"status": "done"}, {"status": ""}, {"status": "ready,"}, {"name": ""}, {"name": "a\0"},
        {"language": "english language"}, {"language": ""}, {"language": "e"},
        {"archived": "1"}, {"archived": "True"}, {"archived": ""}, {"colour": "red"},
        {"limit": "0"}, {"limit": "abc"}, {"limit": "201"}, {"limit": "-1"}, {"page": "2"},
    ]  # fmt: skip
    for query in queries:
        response = client.get(URL, query)
        assert response.status_code == 400, query
        assert response.json()["errors"][0]["attr"] == next(iter(query)), query


# --- change -------------------------------------------------------------------------------------


def test_words_about_a_voice_change_at_once_and_make_no_version(
    client: APIClient, sent_encodings: Listing
) -> None:
    path = f"{URL}/{create(client)['id']}"
    form = client.patch(path, {"name": "Ida"}, format="multipart")
    said = {"name": "Eve", "description": "x", "language": "en", "cache_codes": False}
    response = client.patch(path, said)
    assert form.json()["cache_codes"] is True, "a form that leaves it out keeps it"
    assert response.status_code == 200
    assert response.json() == response.json() | said | {"version": 1}
    assert len(sent_encodings()) == 1


def test_another_transcript_makes_a_version_that_shares_the_bytes_and_evicts(
    client: APIClient, sent_encodings: Listing, stored_objects: Listing
) -> None:
    voice_id = create(client)["id"]
    make_ready(voice_id)

    response = client.patch(f"{URL}/{voice_id}", {"transcript": ["Other words."]})

    shown = response.json()
    assert (response.status_code, response["Location"]) == (202, f"{URL}/{voice_id}")
    assert (shown["version"], shown["status"]) == (2, "pending")
    assert shown["clips"][0]["transcript"] == "Other words."
    assert [version["status"] for version in shown["versions"]] == ["pending", "ready"]
    assert StoredClip.objects.count() == len(stored_objects()) == 1
    assert len(sent_encodings()) == 2
    assert CacheEviction.objects.get().clip_fingerprint == StoredClip.objects.get().fingerprint


def test_another_clip_makes_a_version_and_the_same_one_does_not(client: APIClient) -> None:
    voice_id = create(client)["id"]

    def change(clip: SimpleUploadedFile, transcript: str = "Hello there.") -> tuple[int, Any]:
        sent = {"audio": clip, "transcript": transcript}
        response = client.patch(f"{URL}/{voice_id}", sent, format="multipart")
        return response.status_code, response.json()

    status, shown = change(upload(name="another.wav"), " Hello there. ")
    assert (status, shown["version"], CacheEviction.objects.exists()) == (200, 1, False)
    status, shown = change(upload(OTHER_CLIP))
    assert (status, shown["version"], shown["clips"][0]["container"]) == (202, 2, "flac")
    first = VoiceVersion.objects.get(number=1).clips.get()
    assert (first.filename, StoredClip.objects.count()) == ("ada.wav", 2), "the old one stays"


@pytest.mark.parametrize(
    ("changed", "code", "attr"),
    [
        ({"audio": upload(OTHER_CLIP)}, "transcript_required", "transcript"),
        ({"transcript": ["One.", "Two."]}, "clip_required", "audio"),
        ({"transcript": [" "]}, "transcript_required", "transcript.0"),
        ({"owner": "somebody"}, "unknown_field", "owner"),
        ({"name": ""}, "blank", "name"),
    ],
)
def test_a_bad_change_is_refused_by_name(
    client: APIClient, changed: dict[str, Any], code: str, attr: str
) -> None:
    response = client.patch(f"{URL}/{create(client)['id']}", changed, format="multipart")
    assert refusal_of(response) == (400, code)
    assert response.json()["errors"][0]["attr"] == attr
    assert VoiceVersion.objects.count() == 1


# --- encode, audio ------------------------------------------------------------------------------


def test_a_ready_voice_can_be_encoded_again_and_a_waiting_one_says_when_to_ask(
    client: APIClient, sent_encodings: Listing
) -> None:
    voice_id = create(client)["id"]
    waiting = client.post(f"{URL}/{voice_id}/encode")
    assert refusal_of(waiting) == (409, "voice_encoding")
    assert int(waiting["Retry-After"]) > 0
    assert int(client.get(f"{URL}/{voice_id}")["Retry-After"]) > 0

    make_ready(voice_id)
    refused = client.post(f"{URL}/{voice_id}/encode", {"dtype": "bfloat16"})
    response = client.post(f"{URL}/{voice_id}/encode")
    assert refusal_of(refused) == (400, "unknown_field")
    assert (response.status_code, response.json()["status"]) == (202, "pending")
    assert len(sent_encodings()) == 2


def test_the_clip_comes_back_as_it_was_sent_and_by_range(client: APIClient) -> None:
    shown = create(client, audio=[upload(), upload(OTHER_CLIP)], transcript=["One.", "Two."])

    whole = client.get(shown["audio_url"], HTTP_ACCEPT="audio/*")
    second = client.get(shown["audio_url"], {"clip": 1})
    part = client.get(shown["audio_url"], HTTP_RANGE="bytes=4-11")

    assert (body(whole), whole["Content-Type"]) == (CLIP, "audio/wav")
    assert (body(second), second["Content-Type"]) == (OTHER_CLIP, "audio/flac")
    assert (part.status_code, body(part)) == (206, CLIP[4:12])
    for query, status, code in (
        ("clip=2", 404, "clip_not_found"), ("clip=abc", 400, "invalid"),
        ("clip=-1", 400, "min_value"), ("index=0", 400, "unknown_field"),
    ):  # fmt: skip
        found = refusal_of(client.get(f"{shown['audio_url']}?{query}"))
        assert found == (status, code), query


def test_poll_with_the_tag_of_a_voice_is_a_304_until_it_is_encoded(client: APIClient) -> None:
    voice_id = create(client)["id"]
    path = f"{URL}/{voice_id}"
    answer = client.get(path)

    kept = client.get(path, headers={"If-None-Match": answer["ETag"]})
    assert (kept.status_code, kept.content) == (304, b"")
    assert kept["Retry-After"] == answer["Retry-After"]
    make_ready(voice_id)
    changed = client.get(path, headers={"If-None-Match": answer["ETag"]})
    assert (changed.status_code, changed.json()["status"]) == (200, "ready")
    assert changed["ETag"] != answer["ETag"]
