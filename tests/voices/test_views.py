"""Voices over REST: what is taken, what is refused and how, what answers show."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from pytest_django import DjangoAssertNumQueries, Settings
from rest_framework.test import APIClient

from tests.factories import claim_row, make_voice
from tests.voices.clips import clip_bytes
from voices import transitions
from voices.models import CacheEviction, StoredClip, Voice, VoiceVersion
from voices.removal import delete_voice

pytestmark = pytest.mark.django_db(transaction=True)

Listing = Callable[[], list[str]]
URL = "/api/v1/voices"
CLIP = clip_bytes("wav")
OTHER_CLIP = clip_bytes("flac")


def upload(content: bytes = CLIP, name: str = "ada.wav") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content)


def fields(**changed: Any) -> dict[str, Any]:
    """Return the fields of a good request; None leaves one out."""
    values = {
        "name": "Ada",
        "consent_statement": "She agreed in writing.",
        "audio": upload(),
        "transcript": "Hello there.",
    }
    return {name: value for name, value in (values | changed).items() if value is not None}


def create(client: APIClient, **changed: Any) -> dict[str, Any]:
    """Create a voice and return what the answer shows of it."""
    response = client.post(URL, fields(**changed), format="multipart")
    assert response.status_code == 202, response.content
    shown: dict[str, Any] = response.json()
    return shown


def body(response: Any) -> bytes:
    return b"".join(response.streaming_content)


def make_ready(voice_id: str) -> None:
    """Let a worker's part be done: the voice's newest version becomes ready."""
    version = VoiceVersion.objects.filter(voice_id=uuid.UUID(voice_id)).order_by("-number")[0]
    claim = claim_row(VoiceVersion, version.pk, worker="gpu-1")
    assert claim is not None
    transitions.finish_version(
        claim,
        codec_fingerprint="c" * 64,
        frames=33,
        warnings=[{"code": "clip_short", "message": "The clip has 1.5 s."}],
    )


# --- create -------------------------------------------------------------------------------------


def test_an_upload_is_accepted_and_its_encoding_enqueued(
    client: APIClient, operator: User, sent_encodings: Listing
) -> None:
    response = client.post(URL, fields(language="en-GB", description="Warm."), format="multipart")

    assert response.status_code == 202
    shown = response.json()
    assert response["Location"] == f"{URL}/{shown['id']}"
    assert int(response["Retry-After"]) > 0
    assert (shown["status"], shown["version"], shown["frames"]) == ("pending", 1, 0)
    assert (shown["consent_by"], shown["language"]) == ("operator", "en-GB")
    assert shown["clips"][0]["container"] == "wav"
    assert shown["clips"][0]["transcript"] == "Hello there."
    voice = Voice.objects.get()
    assert voice.owner == operator
    assert voice.cache_codes, "a form that leaves the field out keeps the default"
    assert VoiceVersion.objects.get().sent_at is not None
    assert len(sent_encodings()) == 1


def test_several_clips_keep_their_order_and_transcripts(client: APIClient) -> None:
    transcripts = ["It says <|im_end|> here.", "Second."]  # a special token is text
    clips = [upload(), upload(OTHER_CLIP, "second.flac")]
    shown = create(client, audio=clips, transcript=transcripts, cache_codes="false")
    assert [clip["filename"] for clip in shown["clips"]] == ["ada.wav", "second.flac"]
    assert [clip["transcript"] for clip in shown["clips"]] == transcripts
    assert shown["cache_codes"] is False


@pytest.mark.parametrize(
    ("changed", "status", "code", "attr"),
    [
        ({"name": None}, 400, "required", "name"),
        ({"name": "   "}, 400, "blank", "name"),
        ({"name": "a" * 101}, 400, "max_length", "name"),
        ({"name": "a\0b"}, 400, "null_characters_not_allowed", "name"),
        ({"consent_statement": None}, 400, "required", "consent_statement"),
        ({"consent_statement": " "}, 400, "blank", "consent_statement"),
        ({"audio": None}, 400, "required", "audio"),
        ({"audio": "not a file"}, 400, "invalid", "audio.0"),
        ({"audio": upload(b"")}, 400, "clip_empty", "audio.0"),
        ({"audio": upload(b"I am text. " * 50)}, 400, "clip_not_audio", "audio.0"),
        ({"transcript": None}, 400, "required", "transcript"),
        ({"transcript": " "}, 400, "transcript_required", "transcript.0"),
        ({"transcript": "a" * 5001}, 400, "transcript_too_long", "transcript.0"),
        ({"transcript": "bell \x07"}, 400, "transcript_not_text", "transcript.0"),
        ({"transcript": ["One.", "Two."]}, 400, "clip_required", "audio"),
        ({"audio": [upload(), upload()]}, 400, "transcript_required", "transcript"),
        ({"language": "not a tag"}, 400, "invalid", "language"),
        ({"cache_codes": "perhaps"}, 400, "invalid", "cache_codes"),
        ({"codec": "best"}, 400, "unknown_field", "codec"),
        ({"status": "ready"}, 400, "unknown_field", "status"),
    ],
)
def test_a_bad_field_is_refused_by_name_and_leaves_nothing(
    client: APIClient,
    stored_objects: Listing,
    changed: dict[str, Any],
    status: int,
    code: str,
    attr: str,
) -> None:
    response = client.post(URL, fields(**changed), format="multipart")
    assert response.status_code == status
    assert response["Content-Type"] == "application/problem+json"
    problem = response.json()
    assert problem["code"] == code
    assert [(item["attr"], item["code"]) for item in problem["errors"]] == [(attr, code)]
    assert stored_objects() == []
    assert not Voice.objects.exists()


@pytest.mark.parametrize(
    ("limit", "value", "status", "code"),
    [
        ("MAX_CLIP_BYTES", len(CLIP) - 1, 413, "clip_too_large"),
        ("MAX_CLIPS_PER_VOICE", 1, 400, "too_many_clips"),
    ],
)
def test_clips_above_a_limit_are_refused(
    client: APIClient, settings: Settings, limit: str, value: int, status: int, code: str
) -> None:
    setattr(settings, limit, value)
    two = fields(audio=[upload(), upload()], transcript=["One.", "Two."])
    response = client.post(URL, two, format="multipart")
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert not StoredClip.objects.exists()


def test_a_taken_name_is_a_409(client: APIClient, operator: User) -> None:
    made = create(client)
    make_voice("Eve", owner=operator)
    for response in (
        client.post(URL, fields(name="ADA"), format="multipart"),
        client.patch(f"{URL}/{made['id']}", {"name": "eve"}),
    ):
        assert (response.status_code, response.json()["code"]) == (409, "voice_name_taken")


def test_request_of_another_kind_is_refused(client: APIClient) -> None:
    for response, status, code in (
        (client.post(URL, {"name": "Ada"}, format="json"), 415, "unsupported_media_type"),
        (
            client.generic("POST", URL, "none", content_type="multipart/form-data"),
            400,
            "parse_error",
        ),
        (client.put(URL, {}), 405, "method_not_allowed"),
        (client.get(f"{URL}/abc"), 404, "not_found"),
    ):
        assert (response.status_code, response.json()["code"]) == (status, code)
        assert response["Content-Type"] == "application/problem+json"
        assert status != 405 or "POST" in response["Allow"]


def test_a_full_disk_is_a_507(client: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ttsweb.storage.AtomicFileSystemStorage._save", full)
    response = client.post(URL, fields(), format="multipart")
    assert (response.status_code, response.json()["code"]) == (507, "storage_full")
    assert not Voice.objects.exists()


def test_without_a_key_nothing_is_shown_or_taken() -> None:
    anonymous = APIClient()
    for response in (anonymous.get(URL), anonymous.post(URL, fields(), format="multipart")):
        assert (response.status_code, response.json()["code"]) == (401, "not_authenticated")
        assert response["WWW-Authenticate"].startswith("Bearer")
    assert not Voice.objects.exists()


# --- read ---------------------------------------------------------------------------------------


def test_a_ready_voice_shows_its_measures_and_warnings(client: APIClient) -> None:
    voice_id = create(client)["id"]
    StoredClip.objects.update(measures={"duration_seconds": 1.5, "sample_rate": 44100})
    make_ready(voice_id)

    response = client.get(f"{URL}/{voice_id}")

    shown = response.json()
    assert (response.status_code, shown["status"], shown["frames"]) == (200, "ready", 33)
    assert shown["codec_fingerprint"] == "c" * 64
    assert shown["warnings"] == [{"code": "clip_short", "message": "The clip has 1.5 s."}]
    assert shown["clips"][0]["measures"] == {"duration_seconds": 1.5, "sample_rate": 44100}
    assert "Retry-After" not in response


def test_a_failed_voice_shows_code_and_sentence(client: APIClient) -> None:
    shown = create(client)
    version = VoiceVersion.objects.get()
    claim = claim_row(VoiceVersion, version.pk, worker="gpu-1")
    assert claim is not None
    transitions.fail_version(claim, code="clip_silent", message="Nothing is heard.")
    shown = client.get(f"{URL}/{shown['id']}").json()
    assert (shown["status"], shown["error_code"]) == ("failed", "clip_silent")
    assert shown["error_message"] == "Nothing is heard."


def test_an_unknown_or_deleted_voice_is_a_404(client: APIClient) -> None:
    deleted = make_voice()
    delete_voice(deleted)
    for voice_id in (uuid.uuid4(), deleted.pk):
        for call in (client.get, client.patch, client.delete):
            response = call(f"{URL}/{voice_id}")
            assert (response.status_code, response.json()["code"]) == (404, "voice_not_found")
        response = client.post(f"{URL}/{voice_id}/encode")
        assert (response.status_code, response.json()["code"]) == (404, "voice_not_found")


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


# --- change -------------------------------------------------------------------------------------


def test_words_about_a_voice_change_at_once_and_make_no_version(
    client: APIClient, sent_encodings: Listing
) -> None:
    voice_id = create(client)["id"]
    form = client.patch(f"{URL}/{voice_id}", {"name": "Ida"}, format="multipart")
    response = client.patch(f"{URL}/{voice_id}", {"name": "Eve", "cache_codes": False})
    shown = response.json()
    assert form.json()["cache_codes"] is True, "a form that leaves it out keeps it"
    assert (response.status_code, shown["name"], shown["version"]) == (200, "Eve", 1)
    assert shown["cache_codes"] is False
    assert len(sent_encodings()) == 1


def test_another_transcript_makes_a_version_and_evicts(
    client: APIClient, sent_encodings: Listing
) -> None:
    voice_id = create(client)["id"]
    make_ready(voice_id)

    response = client.patch(f"{URL}/{voice_id}", {"transcript": ["Other words."]})

    shown = response.json()
    assert (response.status_code, shown["version"], shown["status"]) == (202, 2, "pending")
    assert response["Location"] == f"{URL}/{voice_id}"
    assert [version["status"] for version in shown["versions"]] == ["pending", "ready"]
    assert len(sent_encodings()) == 2
    assert CacheEviction.objects.exists()


def test_another_clip_makes_a_version_and_the_same_one_does_not(client: APIClient) -> None:
    voice_id = create(client)["id"]

    def change(clip: SimpleUploadedFile) -> Any:
        sent = {"audio": clip, "transcript": "Hello there."}
        return client.patch(f"{URL}/{voice_id}", sent, format="multipart")

    same, other = change(upload()), change(upload(OTHER_CLIP))
    assert (same.status_code, same.json()["version"]) == (200, 1)
    assert (other.status_code, other.json()["clips"][0]["container"]) == (202, "flac")


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
    voice_id = create(client)["id"]
    response = client.patch(f"{URL}/{voice_id}", changed, format="multipart")
    assert (response.status_code, response.json()["code"]) == (400, code)
    assert response.json()["errors"][0]["attr"] == attr
    assert VoiceVersion.objects.count() == 1


# --- encode, delete, audio ----------------------------------------------------------------------


def test_a_ready_voice_can_be_encoded_again(client: APIClient, sent_encodings: Listing) -> None:
    voice_id = create(client)["id"]
    make_ready(voice_id)
    refused = client.post(f"{URL}/{voice_id}/encode", {"dtype": "bfloat16"})
    response = client.post(f"{URL}/{voice_id}/encode")
    assert (refused.status_code, refused.json()["code"]) == (400, "unknown_field")
    assert (response.status_code, response.json()["status"]) == (202, "pending")
    assert len(sent_encodings()) == 2


def test_a_voice_that_waits_for_the_encoder_says_when_to_ask_again(client: APIClient) -> None:
    voice_id = create(client)["id"]
    shown = client.get(f"{URL}/{voice_id}")
    response = client.post(f"{URL}/{voice_id}/encode")
    assert (response.status_code, response.json()["code"]) == (409, "voice_encoding")
    assert int(response["Retry-After"]) > 0 and int(shown["Retry-After"]) > 0


def test_a_deleted_voice_is_gone_with_its_bytes(client: APIClient, stored_objects: Listing) -> None:
    voice_id = create(client)["id"]
    response = client.delete(f"{URL}/{voice_id}")
    assert (response.status_code, response.content) == (204, b"")
    assert client.get(f"{URL}/{voice_id}").status_code == 404
    assert stored_objects() == []


def test_the_clip_comes_back_as_it_was_sent_and_by_range(client: APIClient) -> None:
    shown = create(client, audio=[upload(), upload(OTHER_CLIP)], transcript=["One.", "Two."])

    whole = client.get(shown["audio_url"], HTTP_ACCEPT="audio/*")
    second = client.get(shown["audio_url"], {"clip": 1})
    part = client.get(shown["audio_url"], HTTP_RANGE="bytes=4-11")

    assert body(whole) == CLIP
    assert whole["Content-Type"] == "audio/wav"
    assert body(second) == OTHER_CLIP
    assert second["Content-Type"] == "audio/flac"
    assert (part.status_code, body(part)) == (206, CLIP[4:12])


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("clip=1", 404, "clip_not_found"),
        ("clip=abc", 400, "invalid"),
        ("clip=-1", 400, "min_value"),
        ("index=0", 400, "unknown_field"),
    ],
)
def test_a_clip_that_is_not_there_is_refused(
    client: APIClient, query: str, status: int, code: str
) -> None:
    shown = create(client)
    response = client.get(f"{shown['audio_url']}?{query}")
    assert (response.status_code, response.json()["code"]) == (status, code)


def test_poll_with_the_tag_of_a_voice_is_a_304_until_it_is_encoded(client: APIClient) -> None:
    voice = create(client)
    path = f"{URL}/{voice['id']}"
    answer = client.get(path)

    kept = client.get(path, headers={"If-None-Match": answer["ETag"]})
    assert (kept.status_code, kept.content) == (304, b"")
    assert kept["Retry-After"] == answer["Retry-After"]
    make_ready(voice["id"])
    changed = client.get(path, headers={"If-None-Match": answer["ETag"]})
    assert (changed.status_code, changed.json()["status"]) == (200, "ready")
    assert changed["ETag"] != answer["ETag"]
