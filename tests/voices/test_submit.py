"""What an upload's bytes and transcript say, and what the domain's callers may do to a voice.

REST and the admin have tests of the rest.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.core.files.storage import default_storage
from pytest_django import Settings

from tests.factories import make_voice
from tests.voices.clips import CLIP, OTHER_CLIP, Listing, clip_bytes
from ttsweb.http.problems import status_of
from voices.clip_checks import ClipRejectedError, check_clip, check_transcript
from voices.models import StoredClip, Voice
from voices.objects import delete_voice
from voices.submit import NewClip, VoiceDeletedError, create_version, create_voice, update_voice

MPEG_FRAME = bytes([0xFF, 0xFB, 0x90, 0x00]) + b"\0" * 413  # 128 kbit/s, 44100 Hz: 417 bytes
MP3 = clip_bytes("mp3")
ID3_TAG = b"ID3\x04\0\0\0\0\0\x05" + b"\0" * 5


@pytest.mark.parametrize(
    ("content", "container"),
    [
        *((clip_bytes(name), name) for name in ("wav", "flac", "ogg", "m4a", "webm")),
        (clip_bytes("mka"), "webm"),
        (MP3, "mp3"),
        (MP3[10 + MP3[9] :], "mp3"),  # without its ID3 tag
        (MPEG_FRAME * 2, "mp3"),
        (ID3_TAG + clip_bytes("flac"), "flac"),
    ],
)
def test_a_real_file_is_known_by_its_container(content: bytes, container: str) -> None:
    assert check_clip(content) == container


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"Hello, I am a text file that was named .wav by somebody.\n" * 20, "text"),
        (b"RIFF\x24\0\0\0AVI LIST" + b"\0" * 100, "a RIFF that is a film"),
        (b"RIFF", "only the first word"),
        (b"ID3\x04\0\0\0\0\0\x05" + b"\0" * 5 + b"just text" * 20, "a tag before text"),
        (b"ID3\x04\0\0\x7f\x7f\x7f\x7f" + b"\0" * 50, "a tag longer than the file"),
        (b"ID3\x04\0\0\xff\xff\xff\xff" + b"\0" * 50, "a tag with a size that cannot be"),
        (MPEG_FRAME + b"and then something else" * 20, "one frame and no second"),
        (b"\xff\xfb\xf0\x00" * 500, "a frame with a bit rate that cannot be"),
        (b"\xff\xf1\x50\x80" + b"\0" * 500, "bare AAC"),
        (b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf" + b"\0" * 50, "a picture"),
        (b"\xff\xff\xff\xffftypM4A \0\0\0\0", "a box longer than the file"),
        (b"\x1a\x45\xdf\xa3\x8f\x42\x82\x84docx" + b"\0" * 50, "EBML of another kind"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 50, "a picture"),
        (b"OggT" + b"\0" * 50, "nearly Ogg"),
        (b"\0" * 5000, "zeros"),
    ],
)
def test_bytes_of_another_kind_are_refused(content: bytes, why: str) -> None:
    assert refusal_of(content) == ("clip_not_audio", 400), why


def refusal_of(content: bytes) -> tuple[str, int]:
    with pytest.raises(ClipRejectedError) as caught:
        check_clip(content)
    return caught.value.code, status_of(caught.value)


def test_one_byte_above_the_limit_is_refused_and_the_limit_itself_is_taken(
    settings: Settings,
) -> None:
    settings.MAX_CLIP_BYTES = len(CLIP)
    assert check_clip(CLIP) == "wav"
    settings.MAX_CLIP_BYTES = len(CLIP) - 1
    assert refusal_of(CLIP) == ("clip_too_large", 413)
    assert refusal_of(b"") == ("clip_empty", 400)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "transcript_required"), (" \n\t ", "transcript_required"),
        ("a" * 5001, "transcript_too_long"),
        *((text, "transcript_not_text") for text in (
            "bell \x07", "null \x00", "c1 \x85", "undecodable \ufffd", "half a pair \ud800"
        )),
    ],
)  # fmt: skip
def test_a_transcript_that_is_no_text_is_refused(text: str, code: str) -> None:
    with pytest.raises(ClipRejectedError) as caught:
        check_transcript(text)
    assert caught.value.code == code


def test_a_transcript_keeps_special_tokens_and_as_many_characters_as_the_limit() -> None:
    said = check_transcript(" It says <|im_end|> here.\r\nTwice. ")
    assert said == "It says <|im_end|> here.\nTwice."
    assert len(check_transcript("ä" * 5000)) == 5000


# --- what callers of the domain may do ------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_changed_consent_statement_is_stored_with_who_and_when() -> None:
    voice = make_voice(consent_by="operator")
    first_time = voice.consent_at

    update_voice(voice, by="second", changes={"description": "Warm."})
    voice.refresh_from_db()
    assert voice.consent_by == "operator"

    update_voice(voice, by="second", changes={"consent_statement": "Agreed again."})
    voice.refresh_from_db()
    assert (voice.consent_statement, voice.consent_by) == ("Agreed again.", "second")
    assert voice.consent_at > first_time


@pytest.mark.django_db(transaction=True)
def test_a_full_disk_at_the_second_clip_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, stored_objects: Listing
) -> None:
    calls = iter([default_storage.save])

    def save_once(*arguments: Any) -> str:
        for first_save in calls:
            return str(first_save(*arguments))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(default_storage._wrapped, "save", save_once)  # type: ignore[attr-defined]  # lazy object

    clips = [NewClip("A.", content=CLIP), NewClip("B.", content=OTHER_CLIP)]
    with pytest.raises(OSError, match="No space left"):
        create_voice(name="Ada", consent_statement="Yes.", by="operator", clips=clips)

    assert stored_objects() == []
    assert not StoredClip.objects.exists()
    assert not Voice.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_deleted_voice_takes_no_change() -> None:
    voice = make_voice()
    delete_voice(voice)
    with pytest.raises(VoiceDeletedError):
        update_voice(voice, by="operator", changes={"name": "Eve"})
    with pytest.raises(VoiceDeletedError):
        create_version(voice, [NewClip("Hello.", content=CLIP)])


@pytest.mark.django_db(transaction=True)
def test_an_inline_reference_is_a_version_without_a_voice(sent_encodings: Listing) -> None:
    version = create_version(None, [NewClip("Hello.", "x.wav", CLIP)])
    version.refresh_from_db()
    assert (version.voice, version.sent_at is None, len(sent_encodings())) == (None, False, 1)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("clips", "code"),
    [
        ([], "clip_required"),
        ([NewClip("Hello.", content=b"text, named .wav")], "clip_not_audio"),
        ([NewClip(" ", content=CLIP)], "transcript_required"),
        ([NewClip("One.", content=CLIP), NewClip("Two.", content=b"")], "clip_empty"),
    ],
)
def test_a_refused_version_leaves_neither_rows_nor_objects(
    clips: list[NewClip], code: str, stored_objects: Listing, sent_encodings: Listing
) -> None:
    with pytest.raises(ClipRejectedError) as caught:
        create_version(None, clips)
    assert caught.value.code == code
    assert not StoredClip.objects.exists()
    assert stored_objects() == sent_encodings() == []


@pytest.mark.django_db(transaction=True)
def test_what_no_caller_may_ask_for_is_an_error() -> None:
    with pytest.raises(ValueError, match="either"):
        NewClip("Hello.")
    with pytest.raises(ValueError, match="consent_by"):
        update_voice(make_voice(), by="operator", changes={"consent_by": "somebody"})
