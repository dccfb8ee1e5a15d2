"""Every format holds all that was written, in blocks, and says when the disk is full."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile

from synth.formats import BOOK_FORMATS, FORMATS
from tests.workers.clips import tone
from workers.audio.writers import FileTooLongError, file_rate, mean_bit_rate, open_writer

RATE = 44_100


def write(path: Path, form: str, *, seconds: float = 1.5, block: int = 10_000) -> None:
    samples = tone(seconds=seconds, rate=RATE)[:, 0]
    with open_writer(path, form, RATE) as writer:
        for start in range(0, len(samples), block):
            writer.write(samples[start : start + block])


@pytest.mark.parametrize("form", ["wav", "flac"])
def test_pcm_formats_hold_the_samples(form: str, tmp_path: Path) -> None:
    write(tmp_path / "file", form)
    samples, rate = soundfile.read(tmp_path / "file", dtype="float32")
    info = soundfile.info(tmp_path / "file")
    assert (rate, info.channels, info.subtype, info.format) == (RATE, 1, "PCM_16", form.upper())
    assert np.max(np.abs(samples - tone(seconds=1.5, rate=RATE)[:, 0])) <= 2**-15


@pytest.mark.parametrize(
    ("form", "codec", "rate"),
    [("mp3", "mp3", RATE), ("opus", "opus", 48_000), ("aac", "aac", RATE)],
)
def test_coded_formats_hold_the_sound(form: str, codec: str, rate: int, tmp_path: Path) -> None:
    write(tmp_path / "file", form)
    waveform, found = _decoded(tmp_path / "file")
    spectrum = np.abs(np.fft.rfft(waveform[:rate]))
    with av.open(str(tmp_path / "file")) as opened:
        assert opened.streams.audio[0].codec_context.name.startswith(codec)
    assert found == rate
    assert len(waveform) / rate == pytest.approx(1.5, abs=0.06)
    assert np.argmax(spectrum) == pytest.approx(220, abs=2)


@pytest.mark.parametrize("form", ["wav", "flac", "mp3", "opus", "aac"])
def test_blocks_of_any_size_give_the_same_file(form: str, tmp_path: Path) -> None:
    write(tmp_path / "small", form, block=777)
    write(tmp_path / "large", form, block=1_000_000)
    small, _ = _decoded(tmp_path / "small")
    large, _ = _decoded(tmp_path / "large")
    assert small.shape == large.shape
    assert np.max(np.abs(small - large)) < 0.01


def test_pcm_is_bare_samples_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "file", "pcm")
    samples = np.frombuffer((tmp_path / "file").read_bytes(), dtype="<i2") / 2**15
    assert len(samples) == 1.5 * RATE
    assert np.max(np.abs(samples - tone(seconds=1.5, rate=RATE)[:, 0])) <= 2**-15


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
        ("mp3", 44_100, 320_000),
        ("aac", 8_000, 48_000),
        ("aac", 48_000, 64_000),
        ("aac", 48_000, 256_000),
        ("opus", 8_000, 12_000),
        ("opus", 48_000, 128_000),
    ],
)
def test_file_has_about_the_bit_rate_that_is_asked_for(
    form: str, rate: int, bit_rate: int, tmp_path: Path
) -> None:
    noise = np.random.default_rng(3).standard_normal(20 * rate).astype(np.float32) * 0.2
    with open_writer(tmp_path / "file", form, rate, bit_rate) as writer:
        writer.write(noise)
    found = mean_bit_rate(tmp_path / "file", form, 20.0)
    assert found == pytest.approx(bit_rate, rel=0 if form == "mp3" else 0.35)


@pytest.mark.parametrize("form", ["mp3", "aac", "opus"])
def test_default_bit_rate_fits_the_lowest_sample_rate(form: str, tmp_path: Path) -> None:
    with open_writer(tmp_path / "file", form, 8_000) as writer:
        writer.write(tone(seconds=1.0, rate=8_000)[:, 0])
    samples, _ = _decoded(tmp_path / "file")
    assert np.std(samples) == pytest.approx(0.3 / 2**0.5, rel=0.1)


def test_rate_that_a_codec_does_not_have_is_resampled(tmp_path: Path) -> None:
    with open_writer(tmp_path / "file", "aac", 17_000) as writer:
        writer.write(tone(seconds=1.0, rate=17_000)[:, 0])
    samples, rate = _decoded(tmp_path / "file")
    assert rate == 48_000
    assert len(samples) / rate == pytest.approx(1.0, abs=0.06)


def test_samples_beyond_full_scale_are_cut_and_do_not_wrap(tmp_path: Path) -> None:
    with open_writer(tmp_path / "file", "wav", RATE) as writer:
        writer.write(np.array([2.0, -2.0], dtype=np.float32))
    samples, _ = soundfile.read(tmp_path / "file")
    assert samples[0] > 0.99
    assert samples[1] < -0.99


@pytest.mark.parametrize("form", list(FORMATS))
def test_full_disk_is_an_os_error(form: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    with pytest.raises(OSError):
        write(Path("/dev/full"), form, seconds=30)


def test_wav_that_would_not_fit_its_own_header_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = dataclasses.replace(BOOK_FORMATS["wav"], most_bytes=10_000)
    monkeypatch.setitem(BOOK_FORMATS, "wav", short)
    with pytest.raises(FileTooLongError):
        write(tmp_path / "file", "wav")


def test_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="aiff"), open_writer(tmp_path / "file", "aiff", RATE):
        pass


def _decoded(path: Path) -> tuple[np.ndarray, int]:
    with av.open(str(path)) as opened:
        stream = opened.streams.audio[0]
        frames = [frame.to_ndarray()[0] for frame in opened.decode(stream)]
    samples = np.concatenate(frames)
    scale = 2**15 if samples.dtype == np.int16 else 1
    return samples / scale, stream.codec_context.sample_rate
