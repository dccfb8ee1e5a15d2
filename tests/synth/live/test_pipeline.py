"""What a listener hears is what the job's file holds, whatever format, rate and pace it has."""

from __future__ import annotations

import io
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

from synth.audio.filters import resample
from synth.audio.writers import open_writer, read_blocks
from synth.contract import AudioArray
from synth.formats import BOOK_FORMATS, FORMATS
from synth.live.pipeline import LiveOptions, Pipeline
from tests.synth.audio.received import MOST_DELAY, delay_between, receive, speech_like
from workers.audio.mastering import JoinedTakes
from workers.rendering.codes import encode_flac

RATE = 44_100
PAUSES = (400, 0, 250)  # ms behind each segment
SPEEDS = (0.5, 1.0, 1.7, 4.0)


def whole_numbers(samples: AudioArray) -> bytes:
    return np.rint(samples * 2**15).astype("<i2").tobytes()


@pytest.fixture(scope="module")
def takes() -> list[AudioArray]:
    """Takes of uneven lengths, in numbers of 16 bits, as pieces have them."""
    parts = np.split(speech_like(4), [50_001, 98_765])
    return [np.rint(part * 2**15).astype(np.float32) / np.float32(2**15) for part in parts]


def file_samples(takes: Sequence[AudioArray], speed: float) -> AudioArray:
    """Return what the job's file is made of, at the takes' rate."""
    rows: list[Any] = []
    for number, (take, pause) in enumerate(zip(takes, PAUSES, strict=True)):
        key = default_storage.save(f"takes/{uuid.uuid4()}", ContentFile(encode_flac(take, RATE)))
        kept = SimpleNamespace(audio_key=key, sample_rate=RATE, audio_seconds=len(take) / RATE)
        rows.append(SimpleNamespace(pk=number, take=kept, take_id=number, pause_after_ms=pause))
    return np.concatenate(list(JoinedTakes(rows, speed=speed).blocks()))


def heard(takes: Sequence[AudioArray], options: LiveOptions, *, piece: int = 9_000) -> bytes:
    pipeline, out = Pipeline(options, RATE), []
    for take, pause in zip(takes, PAUSES, strict=True):
        for start in range(0, len(take), piece):
            out.append(pipeline.sound(whole_numbers(take[start : start + piece])))
        out += pipeline.pause(round(pause * RATE / 1000))
    return b"".join([*out, pipeline.end()])


@pytest.mark.usefixtures("storage_folder")
@pytest.mark.parametrize("speed", SPEEDS)
def test_samples_are_those_of_the_file_at_any_pace(takes: list[AudioArray], speed: float) -> None:
    for rate in (RATE, 16_000):
        options = LiveOptions("pcm", sample_rate=rate, speed=speed)
        found = np.frombuffer(heard(takes, options), dtype="<i2") / 2**15

        file = np.concatenate(list(resample([file_samples(takes, speed)], RATE, rate)))
        assert len(found) == len(file), rate
        assert np.abs(found - file).max() <= 2**-15, rate


@pytest.mark.usefixtures("storage_folder")
@pytest.mark.parametrize("form", [name for name, one in FORMATS.items() if one.is_played])
def test_each_format_holds_the_audio_of_the_file(
    takes: list[AudioArray], form: str, tmp_path: Path
) -> None:
    options = LiveOptions(form, speed=1.5)
    pipeline_rate = Pipeline(options, RATE).sample_rate
    with open_writer(tmp_path / "file", form, pipeline_rate) as writer:
        for block in resample([file_samples(takes, 1.5)], RATE, pipeline_rate):
            writer.write(block)

    found = receive(heard(takes, options))

    file = np.concatenate(list(read_blocks(tmp_path / "file", form, pipeline_rate)))
    delay = delay_between(found.samples, file, most=MOST_DELAY)
    assert found.sample_rate == pipeline_rate
    assert 0 <= len(found.samples) - len(file) <= MOST_DELAY
    both = found.samples[delay : delay + len(file)], file[: len(found.samples) - delay]
    assert np.corrcoef(*both)[0, 1] > 0.999


def test_pieces_of_any_size_give_the_same(takes: list[AudioArray]) -> None:
    options = LiveOptions("wav", sample_rate=8000, speed=1.25)

    assert heard(takes, options, piece=777) == heard(takes, options, piece=1 << 20)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("speed", [0.25, 0.5, 1.0])
def test_first_piece_of_a_tenth_of_a_second_is_sent_at_once(form: str, speed: float) -> None:
    pipeline = Pipeline(LiveOptions(form, speed=speed), RATE)

    assert pipeline.sound(whole_numbers(speech_like(0.1)))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(("speed", "pieces"), [(1.5, (0.1, 0.2)), (4.0, (0.1, 0.2, 0.5))])
def test_fast_pace_is_sent_as_soon_as_there_is_a_frame_of_it(
    form: str, speed: float, pieces: tuple[float, ...]
) -> None:
    pipeline = Pipeline(LiveOptions(form, speed=speed), RATE)

    assert any([pipeline.sound(whole_numbers(speech_like(seconds))) for seconds in pieces])


def test_long_pause_is_encoded_in_blocks() -> None:
    pipeline = Pipeline(LiveOptions("wav", speed=0.25), RATE)
    pipeline.sound(whole_numbers(speech_like(0.1)))

    parts = list(pipeline.pause(10 * RATE))

    assert sum(map(len, parts)) > 2 * 40 * RATE
    assert max(map(len, parts)) <= 2 * max(1 << 14, RATE)


@pytest.mark.parametrize(
    ("job", "form", "options"),
    [
        (("mp3", 24_000, 64_000, 1.5), None, LiveOptions("mp3", 24_000, 64_000, 1.5)),
        (("mp3", 44_100, 64_000, 1.5), "aac", LiveOptions("aac", 44_100, None, 1.5)),
        (("mp3", 44_100, 64_000, 1.0), "opus", LiveOptions("opus")),
        (("m4b", None, None, 1.0), None, LiveOptions("aac")),
    ],
)
def test_options_are_those_of_the_job_as_far_as_the_format_has_them(
    job: tuple[str, int | None, int | None, float], form: str | None, options: LiveOptions
) -> None:
    names = ("format", "sample_rate", "bit_rate", "speed")
    row: Any = SimpleNamespace(**dict(zip(names, job, strict=True)))

    assert LiveOptions.of(row, form) == options
    assert LiveOptions.from_header(options.to_header()) == options
    assert io.StringIO(options.to_header()).read().isascii()
    assert options.format in BOOK_FORMATS
