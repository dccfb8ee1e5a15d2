"""What tests of voices share: folders of their own, an API key, a voice that is encoded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from synth.accounts.access import create_key
from tests.factories import make_user
from tests.voices.clips import CLIP, CODEC, MEASURES, OTHER_CLIP, Listing, give_codes
from voices.models import StoredClip, Voice
from voices.submit import NewClip, create_voice
from voices.transitions import ready_version


@pytest.fixture(autouse=True)
def own_folders(storage_folder: Path, message_folder: Path) -> None:
    """Keep what a test writes, objects and messages, in folders of its own."""


@pytest.fixture
def sent_encodings(message_folder: Path) -> Listing:
    """Return a function that lists the encode messages."""

    def read() -> list[str]:
        messages = [json.loads(path.read_text()) for path in message_folder.iterdir()]
        tasks = [str(message["headers"]["task"]) for message in messages]
        return [task for task in tasks if task == "workers.encode_voice_version"]

    return read


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ttsweb.storage.AtomicFileSystemStorage._save", full)


@pytest.fixture
def operator() -> User:
    return make_user("operator")


@pytest.fixture
def client(operator: User) -> APIClient:
    return APIClient(HTTP_AUTHORIZATION=f"Bearer {create_key(operator, 'tests')[1]}")


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
            NewClip("Hello there.", "ada.wav", CLIP),
            NewClip("And again.", "ada 2.flac", OTHER_CLIP),
        ],
    )
    for stored in StoredClip.objects.all():
        StoredClip.objects.filter(pk=stored.pk).update(measures=MEASURES)
        give_codes(stored)
    assert voice.current_version is not None and ready_version(voice.current_version, CODEC)
    return voice
