"""A voice leaves as one file and comes back as it was: same clips, same codes, same consent.

And clips that bring their codes: taken where they are of the loaded codec, else refused.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import json
import zipfile
from typing import Any

import numpy as np
import pytest
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.urls import reverse
from django.utils import timezone
from rest_framework.test import APIClient

from synth.models import WorkerStatus
from tests.answers import refusal_of
from tests.factories import logged_in, make_voice
from tests.voices.clips import (
    CLIP,
    CODEC,
    CODES,
    MEASURES,
    OLD_CODEC,
    OTHER_CLIP,
    Listing,
    start_worker,
    upload,
    voice_fields,
)
from voices.models import ClipCodes, CodesCounter, ReferenceClip, StoredClip, Voice, VoiceVersion
from voices.objects import delete_voice, store_clip, tenant_of
from workers.rendering.codes import pack_codes, unpack_codes

pytestmark = pytest.mark.django_db(transaction=True)

IMPORT = "/api/v1/voices/import"


def export(client: APIClient, voice: Voice) -> bytes:
    response: Any = client.get(f"/api/v1/voices/{voice.pk}/export")
    assert response.status_code == 200, getattr(response, "content", "")
    content = b"".join(response.streaming_content)
    assert response["Content-Length"] == str(len(content))
    return content


def send(client: APIClient, content: bytes, **fields: Any) -> Any:
    archive = upload(content, "ada.voice.zip")
    return client.post(IMPORT, {"archive": archive} | fields, format="multipart")


def leave(client: APIClient, voice: Voice) -> bytes:
    """Export a voice, and delete it."""
    content = export(client, voice)
    delete_voice(voice)
    return content


def manifest_of(content: bytes) -> Any:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return json.loads(archive.read("manifest.json"))


def test_archive_has_clips_codes_and_consent_and_is_a_plain_zip(
    client: APIClient, voice: Voice
) -> None:
    content = export(client, voice)

    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}
        assert archive.read("clips/0.wav") == CLIP
        assert archive.read("clips/1.flac") == OTHER_CLIP
        codes = archive.read(f"codes/0-{CODEC}.safetensors")
    expected = {"clip": hashlib.sha256(CLIP).hexdigest(), "codec": CODEC}
    assert np.array_equal(unpack_codes(codes, expected), CODES)
    assert export(client, voice) == content, "the same voice gives the same bytes"
    answer = client.head(f"/api/v1/voices/{voice.pk}/export")
    assert (answer.content, answer["Content-Length"]) == (b"", str(len(content)))
    manifest = manifest_of(content)
    assert manifest["consent"]["statement"] == "She agreed in writing."
    assert [clip["transcript"] for clip in manifest["clips"]] == ["Hello there.", "And again."]


def test_round_trip_needs_no_encoder_and_gives_the_voice_back(
    client: APIClient, operator: User, voice: Voice, sent_encodings: Listing
) -> None:
    start_worker()
    content = leave(client, voice)
    assert not StoredClip.objects.exists() and not ClipCodes.objects.exists()

    answer = send(client, content)

    assert answer.status_code == 201, answer.content
    shown = answer.json()
    assert (shown["status"], shown["frames"], shown["codec_fingerprint"]) == ("ready", 8, CODEC)
    assert shown["warnings"] == MEASURES["warnings"] * 2
    assert not CodesCounter.objects.exists()
    back = Voice.objects.get(pk=shown["id"])
    assert back.consent_by == f"anna (imported by {operator.username})"
    assert (back.consent_at, back.owner) == (voice.consent_at, operator)
    again, before = manifest_of(export(client, back)), manifest_of(content)
    again["consent"]["by"] = before["consent"]["by"]
    assert again == before


@pytest.mark.parametrize(
    "worker", [{"state": "stopped"}, {"last_seen_at": timezone.now() - dt.timedelta(days=1)}]
)
def test_codes_of_a_worker_that_is_away_are_kept_and_the_voice_waits_for_it(
    client: APIClient, voice: Voice, worker: dict[str, Any]
) -> None:
    start_worker(**worker)
    answer = send(client, leave(client, voice))
    assert (answer.status_code, answer.json()["status"]) == (202, "pending")
    assert set(ClipCodes.objects.values_list("codec_fingerprint", "frames")) == {(CODEC, 4)}


def test_codes_of_an_unknown_codec_are_left_out_and_the_voice_is_encoded_again(
    client: APIClient, voice: Voice, sent_encodings: Listing, stored_objects: Listing
) -> None:
    start_worker(OLD_CODEC)
    answer = send(client, leave(client, voice))

    assert (answer.status_code, answer.json()["status"]) == (202, "pending")
    assert answer["Retry-After"]
    assert len(sent_encodings()) == 2  # of the voice that went, and of this one
    assert VoiceVersion.objects.get(pk=answer.json()["versions"][0]["id"]).sent_at is not None
    assert [name for name in stored_objects() if name.startswith("codes")] == []


def test_codes_that_the_clip_has_here_stay(
    client: APIClient, voice: Voice, stored_objects: Listing
) -> None:
    start_worker()
    keys, before = set(ClipCodes.objects.values_list("key", flat=True)), stored_objects()
    answer = send(client, export(client, voice), name="Ada the second")
    assert (answer.status_code, answer.json()["name"]) == (201, "Ada the second")
    assert set(ClipCodes.objects.values_list("key", flat=True)) == keys
    assert stored_objects() == before


def test_name_that_is_taken_is_refused_and_nothing_is_kept(
    client: APIClient, operator: User, voice: Voice, stored_objects: Listing
) -> None:
    start_worker()
    content = leave(client, voice)
    make_voice("ADA", owner=operator)
    before = stored_objects()
    assert refusal_of(send(client, content)) == (409, "voice_name_taken")
    assert (stored_objects(), ClipCodes.objects.count()) == (before, 0)


def test_voice_is_exported_without_lost_codes_but_not_without_a_whole_clip(
    client: APIClient, voice: Voice
) -> None:
    path, stored = f"/api/v1/voices/{voice.pk}/export", StoredClip.objects.get(container="wav")
    default_storage.delete(stored.codes.get().key)
    clips = manifest_of(export(client, voice))["clips"]
    assert [len(clip["codes"]) for clip in clips] == [0, 1]

    default_storage.delete(stored.original_key)
    assert refusal_of(client.get(path)) == (410, "clip_lost")
    default_storage.save(stored.original_key, ContentFile(CLIP[:-1] + b"x"))
    assert refusal_of(client.get(path)) == (410, "clip_lost")
    delete_voice(voice)
    assert refusal_of(client.get(path)) == (404, "voice_not_found")


def test_clip_that_is_here_already_is_stored_once_and_keeps_its_measures(
    client: APIClient, operator: User, voice: Voice
) -> None:
    content = export(client, voice)
    stored = store_clip(CLIP, container="wav", tenant=tenant_of(operator.pk))
    StoredClip.objects.update(measures={"duration_seconds": 9.0}, used_key="clips/used.flac")
    send(client, content, name="Other")
    assert {row.measures["duration_seconds"] for row in StoredClip.objects.all()} == {9.0}
    assert StoredClip.objects.count() == 2
    assert ReferenceClip.objects.filter(stored=stored).count() == 2


def test_page_of_a_voice_leads_to_its_export(voice: Voice) -> None:
    page, link = logged_in(), reverse("admin:voices_voice_export_this", args=[voice.pk])
    change = reverse("admin:voices_voice_change", args=[voice.pk])
    assert link in page.get(change).content.decode()
    answer: Any = page.get(link, follow=True)
    assert answer.redirect_chain == [(f"/api/v1/voices/{voice.pk}/export", 302)]
    assert b"".join(answer.streaming_content).startswith(b"PK")


# --- clips that bring their codes -----------------------------------------------------------------


def codes_of(clip: bytes, codec: str = CODEC) -> bytes:
    fingerprint = hashlib.sha256(clip).hexdigest()
    return pack_codes(CODES, clip=fingerprint, codec=codec, resampler="builtin")


def send_codes(client: APIClient, *codes: bytes, clips: tuple[bytes, ...] = (CLIP,)) -> Any:
    fields = voice_fields(
        audio=[upload(clip) for clip in clips],
        transcript=["Hello there." for _ in clips],
        codes=[upload(content, "ada.safetensors") for content in codes],
    )
    return client.post(f"{IMPORT}/codes", fields, format="multipart")


def test_codes_of_the_loaded_codec_make_a_voice_that_is_ready_at_once(client: APIClient) -> None:
    start_worker()
    answer = send_codes(client, codes_of(CLIP), codes_of(OTHER_CLIP), clips=(CLIP, OTHER_CLIP))
    assert answer.status_code == 201, answer.content
    shown = answer.json()
    assert shown == shown | {
        "status": "ready", "frames": 8, "codec_fingerprint": CODEC, "consent_by": "operator",
    }  # fmt: skip
    assert answer["Location"] == f"/api/v1/voices/{shown['id']}"
    assert not CodesCounter.objects.exists()


@pytest.mark.parametrize(
    ("codes", "status", "code"),
    [
        ((codes_of(CLIP, OLD_CODEC),), 409, "codes_of_other_codec"),
        ((codes_of(OTHER_CLIP),), 400, "codes_of_other_clip"),
        ((codes_of(CLIP), codes_of(CLIP)), 400, "codes_required"),
        ((b"",), 400, "codes_invalid"),
        ((codes_of(CLIP)[:-1],), 400, "codes_invalid"),
        ((bytes(4_000_001),), 413, "codes_too_large"),
    ],
    ids=range(6),
)
def test_codes_that_do_not_fit_are_refused_and_nothing_is_kept(
    codes: tuple[bytes, ...], status: int, code: str, client: APIClient, stored_objects: Listing
) -> None:
    start_worker()
    answer = send_codes(client, *codes)
    assert refusal_of(answer) == (status, code)
    assert answer.json()["errors"][0]["attr"] == "codes"
    assert stored_objects() == []
    assert not Voice.objects.exists() and not StoredClip.objects.exists()


def test_codes_are_refused_without_a_worker_and_a_taken_name_leaves_none_of_them(
    client: APIClient, operator: User, stored_objects: Listing
) -> None:
    start_worker(state="stopped")
    assert refusal_of(send_codes(client, codes_of(CLIP))) == (409, "codec_unknown")

    WorkerStatus.objects.update(state="ready")
    make_voice("ada", versions=0, owner=operator)
    assert refusal_of(send_codes(client, codes_of(CLIP))) == (409, "voice_name_taken")
    assert stored_objects() == []
    assert not ClipCodes.objects.exists()
