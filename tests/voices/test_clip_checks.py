"""What an upload's first bytes say of it, and which transcripts are taken."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from tests.voices.clips import clip_bytes
from ttsweb.http.problems import status_of
from voices.clip_checks import ClipRejectedError, check_clip, check_transcript

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
    with pytest.raises(ClipRejectedError) as caught:
        check_clip(content)
    assert (caught.value.code, status_of(caught.value)) == ("clip_not_audio", 400), why


def test_one_byte_above_the_limit_is_refused_and_the_limit_itself_is_taken(
    settings: Settings,
) -> None:
    content = clip_bytes("wav")
    settings.MAX_CLIP_BYTES = len(content)
    assert check_clip(content) == "wav"
    settings.MAX_CLIP_BYTES = len(content) - 1
    for bad, expected in ((content, ("clip_too_large", 413)), (b"", ("clip_empty", 400))):
        with pytest.raises(ClipRejectedError) as caught:
            check_clip(bad)
        assert (caught.value.code, status_of(caught.value)) == expected


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "transcript_required"),
        (" \n\t ", "transcript_required"),
        ("a" * 5001, "transcript_too_long"),
        ("bell \x07", "transcript_not_text"),
        ("null \x00", "transcript_not_text"),
        ("c1 \x85", "transcript_not_text"),
        ("undecodable \ufffd", "transcript_not_text"),
        ("half a pair \ud800", "transcript_not_text"),
    ],
)
def test_a_transcript_that_is_no_text_is_refused(text: str, code: str) -> None:
    with pytest.raises(ClipRejectedError) as caught:
        check_transcript(text)
    assert caught.value.code == code


def test_a_transcript_keeps_special_tokens_and_as_many_characters_as_the_limit() -> None:
    assert check_transcript(" It says <|im_end|> here.\r\nTwice. ") == (
        "It says <|im_end|> here.\nTwice."
    )
    assert len(check_transcript("ä" * 5000)) == 5000
