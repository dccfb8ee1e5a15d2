"""What makes a version of a voice, what does not, and what is left behind by a refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction
from pytest_django import Settings

from tests.factories import make_user, make_voice
from tests.voices.clips import clip_bytes
from voices.clip_checks import ClipRejectedError
from voices.models import CacheEviction, StoredClip, Voice, VoiceVersion
from voices.removal import delete_voice
from voices.submit import (
    NewClip,
    VoiceDeletedError,
    VoiceNameTakenError,
    create_version,
    create_voice,
    current_clips,
    update_voice,
)

pytestmark = pytest.mark.django_db(transaction=True)

Listing = Callable[[], list[str]]
CLIP = clip_bytes("wav")
OTHER_CLIP = clip_bytes("flac")


def new_voice(**fields: Any) -> Voice:
    values: dict[str, Any] = {
        "name": "Ada",
        "consent_statement": "She agreed in writing.",
        "by": "operator",
        "clips": [NewClip("Hello there.", "ada.wav", CLIP)],
    }
    return create_voice(**(values | fields))


def test_a_new_voice_has_one_pending_version_and_one_message(
    sent_encodings: Listing, stored_objects: Listing
) -> None:
    owner = make_user("operator")

    voice = new_voice(owner=owner)

    version = VoiceVersion.objects.get()
    assert (version.voice, version.number, version.status) == (voice, 1, "pending")
    version.refresh_from_db()
    assert version.sent_at is not None
    assert len(sent_encodings()) == 1
    assert version.sent_at is not None
    assert (voice.owner, voice.consent_by) == (owner, "operator")
    assert voice.consent_at is not None
    clip = version.clips.get()
    known = (clip.transcript, clip.filename, clip.stored.container)
    assert known == ("Hello there.", "ada.wav", "wav")
    assert stored_objects() == [clip.stored.original_key]


def test_nothing_is_enqueued_when_the_transaction_is_rolled_back(sent_encodings: Listing) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        new_voice()
        raise ZeroDivisionError
    assert sent_encodings() == []
    assert not Voice.objects.exists()


def test_other_transcripts_make_a_version_that_shares_the_bytes(
    sent_encodings: Listing, stored_objects: Listing
) -> None:
    voice = new_voice()
    clips = [NewClip("Other words.", stored=clip.stored) for clip in current_clips(voice)]

    version = update_voice(voice, by="operator", clips=clips)

    assert version is not None
    assert (version.number, version.status) == (2, "pending")
    assert version.clips.get().transcript == "Other words."
    assert StoredClip.objects.count() == len(stored_objects()) == 1
    assert len(sent_encodings()) == 2
    assert CacheEviction.objects.get().clip_fingerprint == StoredClip.objects.get().fingerprint


def test_another_clip_makes_a_version_and_the_old_one_stays() -> None:
    voice = new_voice()
    version = update_voice(
        voice, by="operator", clips=[NewClip("Hello there.", "b.flac", OTHER_CLIP)]
    )
    assert voice.current_version == version
    assert voice.versions.get(number=1).clips.get().filename == "ada.wav"
    assert StoredClip.objects.count() == 2


def test_an_equal_clip_and_other_words_about_a_voice_make_no_version(
    sent_encodings: Listing,
) -> None:
    voice = new_voice()
    changes = {"name": "Eve", "description": "x", "language": "en", "cache_codes": False}
    equal = [NewClip(" Hello there. ", "another-name.wav", CLIP)]
    assert update_voice(voice, by="operator", clips=equal) is None
    assert not CacheEviction.objects.exists()
    assert update_voice(voice, by="operator", changes=changes) is None
    assert voice.versions.count() == len(sent_encodings()) == 1
    assert Voice.objects.values("name", "description", "language", "cache_codes").get() == changes


def test_a_changed_consent_statement_is_stored_with_who_and_when() -> None:
    voice = new_voice()
    first_time = voice.consent_at

    update_voice(voice, by="second", changes={"description": "Warm."})
    voice.refresh_from_db()
    assert voice.consent_by == "operator"

    update_voice(voice, by="second", changes={"consent_statement": "Agreed again."})
    voice.refresh_from_db()
    assert (voice.consent_statement, voice.consent_by) == ("Agreed again.", "second")
    assert voice.consent_at > first_time


def test_a_name_is_taken_in_whatever_case_and_the_bytes_are_let_go(stored_objects: Listing) -> None:
    voice = new_voice(name="Ada")
    before = stored_objects()
    with pytest.raises(VoiceNameTakenError):
        new_voice(name="ADA", clips=[NewClip("Hello.", "b.flac", OTHER_CLIP)])
    assert stored_objects() == before
    assert StoredClip.objects.count() == Voice.objects.count() == 1
    delete_voice(voice)
    assert new_voice(name="ADA").pk is not None


@pytest.mark.parametrize(
    ("clips", "code"),
    [
        ([], "clip_required"),
        ([NewClip("Hello.", content=b"text, named .wav")], "clip_not_audio"),
        ([NewClip(" ", content=CLIP)], "transcript_required"),
        ([NewClip(f"Number {n}.", content=CLIP) for n in range(4)], "too_many_clips"),
        ([NewClip("One.", content=CLIP), NewClip("Two.", content=b"")], "clip_empty"),
    ],
)
def test_a_refused_voice_leaves_neither_rows_nor_objects(
    clips: list[NewClip],
    code: str,
    settings: Settings,
    stored_objects: Listing,
    sent_encodings: Listing,
) -> None:
    settings.MAX_CLIPS_PER_VOICE = 3
    with pytest.raises(ClipRejectedError) as caught:
        new_voice(clips=clips)
    assert caught.value.code == code
    assert not Voice.objects.exists()
    assert not StoredClip.objects.exists()
    assert stored_objects() == sent_encodings() == []


def test_a_full_disk_at_the_second_clip_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, stored_objects: Listing
) -> None:
    from django.core.files.storage import default_storage

    save = default_storage.save
    calls = iter([save])

    def save_once(*arguments: Any) -> str:
        for first_save in calls:
            return str(first_save(*arguments))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(default_storage._wrapped, "save", save_once)  # type: ignore[attr-defined]  # lazy object

    with pytest.raises(OSError, match="No space left"):
        new_voice(clips=[NewClip("A.", content=CLIP), NewClip("B.", content=OTHER_CLIP)])

    assert stored_objects() == []
    assert not StoredClip.objects.exists()
    assert not Voice.objects.exists()


def test_a_deleted_voice_takes_no_change() -> None:
    voice = make_voice()
    delete_voice(voice)
    with pytest.raises(VoiceDeletedError):
        update_voice(voice, by="operator", changes={"name": "Eve"})
    with pytest.raises(VoiceDeletedError):
        create_version(voice, [NewClip("Hello.", content=CLIP)])


def test_an_inline_reference_is_a_version_without_a_voice(sent_encodings: Listing) -> None:
    version = create_version(None, [NewClip("Hello.", "x.wav", CLIP)])
    assert version.voice is None
    version.refresh_from_db()
    assert version.sent_at is not None
    assert len(sent_encodings()) == 1


def test_what_no_caller_may_ask_for_is_an_error() -> None:
    with pytest.raises(ValueError, match="either"):
        NewClip("Hello.")
    with pytest.raises(ValueError, match="consent_by"):
        update_voice(make_voice(), by="operator", changes={"consent_by": "somebody"})
