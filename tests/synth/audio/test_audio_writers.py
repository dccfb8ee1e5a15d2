"""Every format holds all that was written, in blocks, and says when the disk is full."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile

from synth.audio.writers import (
    FileTooLongError,
    file_rate,
    mean_bit_rate,
    open_writer,
)
from synth.contract import AudioArray
from synth.formats import BOOK_FORMATS, FORMATS
from tests.workers.clips import tone

RATE = 44_100


def put(
    path: Path,
    form: str,
    samples: AudioArray,
    rate: int = RATE,
    *,
    block: int = 1 << 30,
    bit_rate: int | None = None,
) -> None:
    with open_writer(path, form, rate, bit_rate) as writer:
        for start in range(0, len(samples), block):
            writer.write(samples[start : start + block])


def sound(seconds: float = 1.5, rate: int = RATE) -> AudioArray:
    return tone(seconds=seconds, rate=rate)[:, 0]


def decoded(path: Path) -> tuple[np.ndarray, int]:
    with av.open(str(path)) as opened:
        stream = opened.streams.audio[0]
        samples = np.concatenate([frame.to_ndarray()[0] for frame in opened.decode(stream)])
        scale = 2**15 if samples.dtype == np.int16 else 1
        return samples / scale, stream.codec_context.sample_rate


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


@pytest.mark.parametrize("form", ["wav", "flac"])
def test_pcm_formats_hold_the_samples(form: str, path: Path) -> None:
    put(path, form, sound(), block=10_000)
    samples, rate = soundfile.read(path, dtype="float32")
    info = soundfile.info(path)
    assert (rate, info.channels, info.subtype, info.format) == (RATE, 1, "PCM_16", form.upper())
    assert np.max(np.abs(samples - sound())) <= 2**-15


@pytest.mark.parametrize(
    ("form", "codec", "rate"),
    [("mp3", "mp3", RATE), ("opus", "opus", 48_000), ("aac", "aac", RATE)],
)
def test_coded_formats_hold_the_sound(form: str, codec: str, rate: int, path: Path) -> None:
    put(path, form, sound(), block=10_000)
    waveform, found = decoded(path)
    with av.open(str(path)) as opened:
        assert opened.streams.audio[0].codec_context.name.startswith(codec)
    assert found == rate
    assert len(waveform) / rate == pytest.approx(1.5, abs=0.06)
    assert np.argmax(np.abs(np.fft.rfft(waveform[:rate]))) == pytest.approx(220, abs=2)


@pytest.mark.parametrize("form", ["wav", "flac", "mp3", "opus", "aac"])
def test_blocks_of_any_size_give_the_same_file(form: str, tmp_path: Path) -> None:
    files = []
    for block in (777, 1_000_000):
        put(tmp_path / str(block), form, sound(), block=block)
        files.append(decoded(tmp_path / str(block))[0])
    small, large = files
    assert small.shape == large.shape
    assert np.max(np.abs(small - large)) < 0.01


def test_pcm_is_bare_samples_and_nothing_else(path: Path) -> None:
    put(path, "pcm", sound())
    samples = np.frombuffer(path.read_bytes(), dtype="<i2") / 2**15
    assert len(samples) == 1.5 * RATE
    assert np.max(np.abs(samples - sound())) <= 2**-15


@pytest.mark.parametrize(
    ("form", "take_rate", "asked", "bit_rate", "rate"),
    [
        ("wav", 44_100, None, None, 44_100),
        ("wav", 44_100, 8_000, None, 8_000),
        ("pcm", 44_100, None, None, 24_000),
        ("pcm", 44_100, 16_000, None, 16_000),
        ("opus", 24_000, None, None, 48_000),
        ("opus", 44_100, 24_000, None, 24_000),
        ("mp3", 24_000, None, None, 24_000),
        ("mp3", 24_000, None, 320_000, 48_000),
        ("aac", 17_000, None, None, 48_000),
        ("aac", 24_000, None, 200_000, 48_000),
    ],
)
def test_rate_of_a_file_is_the_asked_one_or_one_that_its_format_has(
    form: str, take_rate: int, asked: int | None, bit_rate: int | None, rate: int
) -> None:
    assert file_rate(form, take_rate, asked=asked, bit_rate=bit_rate) == rate


@pytest.mark.parametrize(
    ("form", "rate", "bit_rate"),
    [
        ("mp3", 8_000, 32_000),
        ("mp3", 22_050, 160_000),
        ("mp3", RATE, 320_000),
        ("aac", 8_000, 48_000),
        ("aac", 48_000, 64_000),
        ("aac", 48_000, 256_000),
        ("opus", 8_000, 12_000),
        ("opus", 48_000, 128_000),
    ],
)
def test_file_has_about_the_bit_rate_that_is_asked_for(
    form: str, rate: int, bit_rate: int, path: Path
) -> None:
    noise = np.random.default_rng(3).standard_normal(10 * rate).astype(np.float32) * 0.2
    put(path, form, noise, rate, bit_rate=bit_rate)
    found = mean_bit_rate(path, form, 10.0)
    assert found == pytest.approx(bit_rate, rel=0 if form == "mp3" else 0.35)


@pytest.mark.parametrize("form", ["mp3", "aac", "opus"])
def test_default_bit_rate_fits_the_lowest_sample_rate(form: str, path: Path) -> None:
    put(path, form, sound(1.0, 8_000), 8_000)
    assert np.std(decoded(path)[0]) == pytest.approx(0.3 / 2**0.5, rel=0.1)


def test_rate_that_a_codec_does_not_have_is_resampled(path: Path) -> None:
    put(path, "aac", sound(1.0, 17_000), 17_000)
    samples, rate = decoded(path)
    assert rate == 48_000
    assert len(samples) / rate == pytest.approx(1.0, abs=0.06)


def test_samples_beyond_full_scale_are_cut_and_do_not_wrap(path: Path) -> None:
    put(path, "wav", np.array([2.0, -2.0], dtype=np.float32))
    high, low = soundfile.read(path)[0]
    assert high > 0.99 and low < -0.99


@pytest.mark.parametrize("form", list(FORMATS))
def test_full_disk_is_an_os_error(form: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    with pytest.raises(OSError):
        put(Path("/dev/full"), form, sound(10), block=10_000)


def test_wav_that_would_not_fit_its_own_header_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = dataclasses.replace(BOOK_FORMATS["wav"], most_bytes=10_000)
    monkeypatch.setitem(BOOK_FORMATS, "wav", short)
    with pytest.raises(FileTooLongError):
        put(path, "wav", sound())


def test_unknown_format_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="aiff"):
        put(path, "aiff", sound())
