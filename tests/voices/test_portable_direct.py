"""Clips that bring their codes: taken where they are of the loaded codec, else refused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from rest_framework.test import APIClient

from tests.factories import make_voice
from tests.voices.test_portable import CLIP, CODEC, CODES, OLD_CODEC, OTHER_CLIP, start_worker
from voices.models import ClipCodes, CodesCounter, StoredClip, Voice
from workers.rendering.codes import pack_codes

pytestmark = pytest.mark.django_db(transaction=True)

URL = "/api/v1/voices/import/codes"


def codes_of(clip: bytes, codec: str = CODEC) -> bytes:
    fingerprint = hashlib.sha256(clip).hexdigest()
    return pack_codes(CODES, clip=fingerprint, codec=codec, resampler="builtin")


def send(client: APIClient, *codes: bytes, clips: tuple[bytes, ...] = (CLIP,), **more: Any) -> Any:
    fields = {
        "name": "Ada",
        "consent_statement": "She agreed in writing.",
        "audio": [SimpleUploadedFile("ada.wav", clip) for clip in clips],
        "transcript": ["Hello there." for _ in clips],
        "codes": [SimpleUploadedFile("ada.safetensors", content) for content in codes],
    }
    return client.post(URL, fields | more, format="multipart")


def test_codes_of_the_loaded_codec_make_a_voice_that_is_ready_at_once(client: APIClient) -> None:
    start_worker()
    answer = send(client, codes_of(CLIP), codes_of(OTHER_CLIP), clips=(CLIP, OTHER_CLIP))
    assert answer.status_code == 201, answer.content
    shown = answer.json()
    assert (shown["status"], shown["frames"], shown["codec_fingerprint"]) == ("ready", 8, CODEC)
    assert shown["consent_by"] == "operator"
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
)
def test_codes_that_do_not_fit_are_refused_and_nothing_is_kept(
    codes: tuple[bytes, ...],
    status: int,
    code: str,
    client: APIClient,
    stored_objects: Callable[[], list[str]],
) -> None:
    start_worker()
    answer = send(client, *codes)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code)
    assert problem["errors"][0]["attr"] == "codes"
    assert stored_objects() == []
    assert not Voice.objects.exists() and not StoredClip.objects.exists()


def test_codes_are_refused_while_no_worker_says_which_codec_is_loaded(client: APIClient) -> None:
    start_worker(state="stopped")
    answer = send(client, codes_of(CLIP))
    assert (answer.status_code, answer.json()["code"]) == (409, "codec_unknown")


def test_name_that_is_taken_leaves_nothing_behind(
    client: APIClient, operator: User, stored_objects: Callable[[], list[str]]
) -> None:
    start_worker()
    make_voice("ada", versions=0, owner=operator)
    answer = send(client, codes_of(CLIP))
    assert (answer.status_code, answer.json()["code"]) == (409, "voice_name_taken")
    assert stored_objects() == []
    assert not ClipCodes.objects.exists()
