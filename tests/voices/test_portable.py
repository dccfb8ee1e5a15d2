"""A voice leaves as one file and comes back as it was: same clips, same codes, same consent."""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import json
import uuid
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from rest_framework.test import APIClient

from synth.models import WorkerStatus
from tests.factories import make_user, make_voice
from tests.voices.clips import clip_bytes
from voices.models import ClipCodes, CodesCounter, ReferenceClip, StoredClip, Voice, VoiceVersion
from voices.objects import store_clip, tenant_of
from voices.removal import delete_voice
from voices.submit import NewClip, create_voice
from voices.transitions import ready_version
from workers.audio.clips import warnings_for
from workers.rendering.codes import pack_codes, unpack_codes

pytestmark = pytest.mark.django_db(transaction=True)

Listing = Callable[[], list[str]]
IMPORT = "/api/v1/voices/import"
CLIP, OTHER_CLIP = clip_bytes("wav"), clip_bytes("flac")
CODEC, OLD_CODEC = "c" * 64, "d" * 64
CODES = np.arange(40, dtype=np.int16).reshape(10, 4)
MEASURES: dict[str, Any] = {
    "duration_seconds": 1.5,
    "peak_dbfs": -10.46,
    "rms_dbfs": -13.47,
    "silence_share": 0.0,
    "noise_floor_dbfs": -70.5,
    "peaks": [0, 17, 255],
    "sample_rate": 44100,
    "channels": 1,
    "codec": "pcm_s16le",
    "container": "wav",
    "clipped_share": 0.0,
    "damaged_packets": 0,
}
MEASURES["warnings"] = warnings_for(MEASURES)


def give_codes(stored: StoredClip, codec: str = CODEC) -> None:
    """Let a worker's part be done for one clip."""
    content = pack_codes(CODES, clip=stored.fingerprint, codec=codec, resampler="builtin")
    key = default_storage.save(f"codes/{uuid.uuid4().hex}", ContentFile(content))
    ClipCodes.objects.create(
        clip=stored, codec_fingerprint=codec, key=key, frames=4, encoded_at=timezone.now()
    )


def start_worker(codec: str = CODEC, **columns: Any) -> None:
    """Let a worker say that it has loaded a codec."""
    now = timezone.now()
    values: dict[str, Any] = {"state": "ready", "started_at": now, "last_seen_at": now}
    WorkerStatus.objects.create(name=codec[:4], codec_fingerprint=codec, **(values | columns))


@pytest.fixture
def voice(operator: User) -> Voice:
    """A voice of two clips that a worker has encoded."""
    voice = create_voice(
        name="Ada",
        description="Warm.",
        language="en-GB",
        consent_statement="She agreed in writing.",
        by="anna",
        owner=operator,
        cache_codes=False,
        clips=[
            NewClip("Hello there.", "ada.wav", content=CLIP),
            NewClip("And again.", "ada 2.flac", content=OTHER_CLIP),
        ],
    )
    for stored in StoredClip.objects.all():
        StoredClip.objects.filter(pk=stored.pk).update(measures=MEASURES)
        give_codes(stored)
    assert voice.current_version is not None and ready_version(voice.current_version, CODEC)
    return voice


def export(client: APIClient, voice: Voice) -> bytes:
    response: Any = client.get(f"/api/v1/voices/{voice.pk}/export")
    assert response.status_code == 200, getattr(response, "content", "")
    content = b"".join(response.streaming_content)
    assert response["Content-Length"] == str(len(content))
    return content


def send(client: APIClient, content: bytes, **fields: Any) -> Any:
    archive = SimpleUploadedFile("ada.voice.zip", content)
    return client.post(IMPORT, {"archive": archive} | fields, format="multipart")


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
    content = export(client, voice)
    delete_voice(voice)
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
    content = export(client, voice)
    delete_voice(voice)
    answer = send(client, content)
    assert (answer.status_code, answer.json()["status"]) == (202, "pending")
    assert set(ClipCodes.objects.values_list("codec_fingerprint", "frames")) == {(CODEC, 4)}


def test_codes_of_an_unknown_codec_are_left_out_and_the_voice_is_encoded_again(
    client: APIClient, voice: Voice, sent_encodings: Listing, stored_objects: Listing
) -> None:
    start_worker(OLD_CODEC)
    content = export(client, voice)
    delete_voice(voice)

    answer = send(client, content)

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
    content = export(client, voice)
    delete_voice(voice)
    make_voice("ADA", owner=operator)
    before = stored_objects()

    answer = send(client, content)

    assert (answer.status_code, answer.json()["code"]) == (409, "voice_name_taken")
    assert "voice" in answer.json()["detail"]
    assert (stored_objects(), ClipCodes.objects.count()) == (before, 0)


def test_voice_whose_codes_are_lost_is_exported_without_them(
    client: APIClient, voice: Voice
) -> None:
    default_storage.delete(ClipCodes.objects.get(clip__container="wav").key)
    clips = manifest_of(export(client, voice))["clips"]
    assert [len(clip["codes"]) for clip in clips] == [0, 1]


def test_voice_that_is_deleted_or_whose_clip_is_lost_or_damaged_is_not_exported(
    client: APIClient, voice: Voice
) -> None:
    path = f"/api/v1/voices/{voice.pk}/export"
    key = StoredClip.objects.get(container="wav").original_key
    default_storage.delete(key)
    gone = client.get(path)
    default_storage.save(key, ContentFile(CLIP[:-1] + b"x"))
    damaged = client.get(path)
    delete_voice(voice)
    deleted = client.get(path)

    for answer in (gone, damaged):
        assert (answer.status_code, answer.json()["code"]) == (410, "clip_lost")
    assert (deleted.status_code, deleted.json()["code"]) == (404, "voice_not_found")


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
    page = Client()
    page.force_login(make_user("root", is_superuser=True))
    change = reverse("admin:voices_voice_change", args=[voice.pk])
    link = reverse("admin:voices_voice_export_this", args=[voice.pk])
    assert link in page.get(change).content.decode()
    answer: Any = page.get(link, follow=True)
    assert answer.redirect_chain == [(f"/api/v1/voices/{voice.pk}/export", 302)]
    assert b"".join(answer.streaming_content).startswith(b"PK")
