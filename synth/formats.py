"""List the formats of audio files: all that depends on a file's format stands in this table.

docs/extending.md says how to add one. Files are named here too, after titles, so that every file
system and player can hold the names.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

MIN_SPEED, MAX_SPEED = 0.25, 4.0  # pace of a file against that of its takes
SAMPLE_RATES = (8000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
MIN_BIT_RATE, MAX_BIT_RATE = 6000, 320_000
WAV_BYTES = 2**32 - 2**16  # sizes inside a WAV file are 32 bits wide
_USUAL_RATE = 44_100
# For type checkers, which cannot read the table: the formats with `is_of_books`.
BookFileFormat = Literal["m4b", "mp3", "opus", "flac", "wav"]


class Writer(StrEnum):
    """What writes a file, and reads it back."""

    SAMPLES = "samples"  # s16le, mono, behind a head where there is a `container`
    CODEC = "codec"  # PyAV, with `container` and `codec`
    SPLICED = "spliced"  # chapters of `spliced_from` in a container of our own


@dataclass(frozen=True, slots=True, kw_only=True)
class BitRates:
    """Say which bit rates a format has, in bits per second of mono audio.

    `usual` holds for a job that asks for none, `of_books` for a book. Where `steps` are given there
    are no others. What a sample rate can hold is bounded by `per_sample`, and by `most_up_to`:
    pairs of a sample rate and the most bits that files up to this rate have.
    """

    usual: int
    of_books: int
    low: int
    high: int
    steps: tuple[int, ...] = ()
    per_sample: int | None = None
    most_up_to: tuple[tuple[int, int], ...] = ()

    def most(self, sample_rate: int) -> int:
        """Return how many bits per second a file of a sample rate can have."""
        most = next((most for rate, most in self.most_up_to if sample_rate <= rate), self.high)
        return most if self.per_sample is None else min(most, self.per_sample * sample_rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioFormat:
    """Hold all that depends on a file's format; rates are in Hz."""

    name: str
    label: str
    content_type: str
    extension: str  # how files end, without the dot
    writer: Writer
    container: str = ""  # FFmpeg's names of muxer and encoder
    codec: str = ""
    container_options: dict[str, str] = field(default_factory=dict)  # of the muxer, for books
    # Of muxer and encoder where the file is sent while it is made: bytes are not to be kept back.
    stream_container_options: dict[str, str] = field(default_factory=dict)
    stream_codec_options: dict[str, str] = field(default_factory=dict)
    bit_rates: BitRates | None = None  # None where no sound is lost
    sample_rates: tuple[int, ...] = SAMPLE_RATES  # that may be asked for
    rate: int | None = None  # of a job that asks for none; None takes that of its takes
    book_rates: tuple[int, ...] = ()  # of books, none for any; other audio becomes 44.1 kHz
    is_of_jobs: bool = True  # texts may ask for it; books may ask for all
    is_of_books: bool = False  # a book is mastered and joined in it, with tags and marks
    spliced_from: str = ""  # the format whose encoded chapters are copied into it
    is_played: bool = True  # by browsers
    tags_on_stream: bool = False  # tags are the audio stream's, not the container's
    marks: Literal["container", "tags", ""] = ""  # where a book's chapters are marked
    has_cover: bool = False  # the container has a place for a picture
    states_bit_rate: bool = False  # its frames say what a short file's size does not
    most_bytes: int | None = None  # of samples, where the format can hold no more

    @property
    def chapters_as(self) -> str:
        return self.spliced_from or self.name

    def book_rate(self, sample_rate: int) -> int:
        """Return the rate in Hz of a book's file: the audio's own where the format has it."""
        return sample_rate if sample_rate in (self.book_rates or (sample_rate,)) else _USUAL_RATE


# A frame of AAC holds 6,144 bits of each channel and lasts 1,024 samples.
_AAC_BITS = BitRates(usual=128_000, of_books=64_000, low=16_000, high=256_000, per_sample=6)
_AAC_RATES = (7350, 8000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 64_000,
              88_200, 96_000)  # fmt: skip
_TABLE = (
    AudioFormat(
        name="m4b", label="M4B with chapters", content_type="audio/mp4", extension="m4b",
        writer=Writer.SPLICED, spliced_from="aac", bit_rates=_AAC_BITS, book_rates=_AAC_RATES,
        is_of_jobs=False, is_of_books=True, marks="container", has_cover=True,
    ),
    AudioFormat(
        name="mp3", label="MP3", content_type="audio/mpeg", extension="mp3",
        writer=Writer.CODEC, container="mp3", codec="libmp3lame",
        container_options={"id3v2_version": "4"},
        bit_rates=BitRates(
            usual=128_000,
            of_books=192_000,  # constant: what shops ask for
            low=32_000,
            high=320_000,
            steps=tuple(1000 * kilobits for kilobits in (
                32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320,
            )),
            most_up_to=((12_000, 64_000), (24_000, 160_000)),
        ),
        book_rates=(32_000, 44_100, 48_000),  # others cannot hold 192 kbit/s
        is_of_books=True, marks="container", has_cover=True, states_bit_rate=True,
    ),
    AudioFormat(
        name="opus", label="Opus", extension="opus",
        content_type="audio/ogg",  # players go by the outer container
        writer=Writer.CODEC, container="ogg", codec="libopus",
        stream_container_options={"page_duration": "40000"},  # microseconds of one page
        bit_rates=BitRates(usual=64_000, of_books=48_000, low=6000, high=256_000),
        sample_rates=(8000, 12_000, 16_000, 24_000, 48_000), rate=48_000,  # that it has inside
        is_of_books=True, marks="tags", tags_on_stream=True,
    ),
    AudioFormat(
        name="flac", label="FLAC", content_type="audio/flac", extension="flac",
        writer=Writer.CODEC, container="flac", codec="flac",
        stream_codec_options={"frame_size": "1152"},  # samples
        is_of_books=True, marks="tags", has_cover=True,
    ),
    AudioFormat(
        name="wav", label="WAV", content_type="audio/wav", extension="wav",
        writer=Writer.SAMPLES, container="wav", most_bytes=WAV_BYTES, is_of_books=True,
    ),
    AudioFormat(  # ADTS: frames that need no container
        name="aac", label="AAC", content_type="audio/aac", extension="aac",
        writer=Writer.CODEC, container="adts", codec="aac",
        bit_rates=_AAC_BITS, book_rates=_AAC_RATES,
    ),
    AudioFormat(  # at the rate that clients expect, since nothing in the file says it
        name="pcm", label="PCM", content_type="audio/pcm", extension="pcm",
        writer=Writer.SAMPLES, rate=24_000, is_played=False,
    ),
)  # fmt: skip

BOOK_FORMATS = {one.name: one for one in _TABLE}
FORMATS = {name: one for name, one in BOOK_FORMATS.items() if one.is_of_jobs}
BOOK_FILES = {name: one for name, one in BOOK_FORMATS.items() if one.is_of_books}
# A file for each chapter, which is encoded for it.
CHAPTER_FORMATS = tuple(name for name, one in BOOK_FILES.items() if not one.spliced_from)
LOSSY = tuple(name for name, one in FORMATS.items() if one.bit_rates is not None)


def bit_rate_ranges() -> str:
    return ", ".join(
        f"{name} {_range_of(one.bit_rates)}" for name, one in FORMATS.items() if one.bit_rates
    )


def _range_of(bits: BitRates) -> str:
    """Return a format's bit rates in words, with what depends on the sample rate."""
    less = [f"at most {most} up to {rate} Hz" for rate, most in bits.most_up_to]
    if bits.per_sample is not None:
        less.append(f"at most {bits.per_sample} times the sample rate")
    words = f"{bits.low} to {bits.high}" + (" in steps" if bits.steps else "")
    return f"{words} ({', '.join(less)})" if less else words


def sample_rate_exceptions() -> str:
    """Return which formats have fewer sample rates than the others, in words."""
    return "".join(
        f"; for {name} {', '.join(map(str, one.sample_rates))}"
        for name, one in FORMATS.items()
        if one.sample_rates != SAMPLE_RATES
    )


_FORBIDDEN = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f\ud800-\udfff\u200e\u200f\u202a-\u202e]')
_RESERVED = re.compile(r"(?i)^(con|prn|aux|nul|com\d|lpt\d)(\..*)?$")
_MAX_NAME_BYTES = 150  # file systems take 255; numbers, endings and temporary names need some


def safe_name(text: str, default: str) -> str:
    """Return a text as one part of a path; `default` where nothing of it can stay."""
    name = unicodedata.normalize("NFC", text)
    name = re.sub(r"\s+", " ", _FORBIDDEN.sub(" ", name)).strip(" .")
    name = name.encode()[:_MAX_NAME_BYTES].decode(errors="ignore").strip(" .")
    if _RESERVED.match(name):
        name = f"_{name}"
    return name or default


def numbered_name(index: int, count: int, title: str) -> str:
    """Return the name of a chapter's file without its ending; names sort in reading order."""
    width = max(2, len(str(count)))
    return f"{index + 1:0{width}d} - {safe_name(title, 'Chapter')}"
