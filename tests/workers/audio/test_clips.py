"""Uploads of every container decode; what lies, swells, hangs or is no clip ends with its code."""

from __future__ import annotations

import io
import struct
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from tests.workers.clips import coded_bytes, tone, wav_bytes
from workers import bounded_child
from workers.audio import clip_child, clips
from workers.audio.clips import (
    FLOOR_DBFS,
    ClipError,
    ClipLimits,
    DecodedClip,
    dbfs,
    decode_clip,
    measure,
    warnings_for,
)

LIMITS = ClipLimits(min_seconds=1.0, max_seconds=60.0, wall_seconds=180.0, megabytes=1024)


def decode_here(source: Path, target: Path, container: str, limits: ClipLimits) -> dict[str, Any]:
    """Stand in for the child, which takes a second to start."""
    return clip_child.decode(source, target, container=container, max_seconds=limits.max_seconds)


def decoded(
    content: bytes, container: str = "wav", *, in_child: bool = False, **changes: Any
) -> DecodedClip:
    with pytest.MonkeyPatch.context() as patch:
        if not in_child:
            patch.setattr(clips, "_run_child", decode_here)
        return decode_clip(content, container=container, limits=replace(LIMITS, **changes))


def refused(content: bytes, container: str = "wav", **options: Any) -> str:
    with pytest.raises(ClipError) as caught:
        decoded(content, container, **options)
    assert caught.value.message.endswith(".")
    return caught.value.code


def loudest_hertz(clip: DecodedClip) -> int:
    return int(np.argmax(np.abs(np.fft.rfft(clip.waveform[: clip.sample_rate]))))


@pytest.mark.parametrize(
    ("subtype", "codec", "tolerance"),
    [("PCM_16", "pcm_s16le", 2**-15), ("PCM_24", "pcm_s24le", 2**-23), ("FLOAT", "pcm_f32le", 0)],
)
def test_wav_of_any_depth_gives_its_samples(subtype: str, codec: str, tolerance: float) -> None:
    samples = tone(seconds=1.5)
    clip = decoded(wav_bytes(samples, subtype=subtype))
    assert (clip.measures["codec"], clip.sample_rate) == (codec, 24_000)
    assert clip.waveform.dtype == np.float32
    assert np.max(np.abs(clip.waveform - samples[:, 0])) <= tolerance


@pytest.mark.parametrize(
    ("container", "file_format", "codec"),
    [
        ("mp3", "mp3", "libmp3lame"),
        ("ogg", "ogg", "libopus"),
        ("m4a", "mp4", "aac"),
        ("webm", "webm", "libopus"),
    ],
)
def test_coded_clip_keeps_its_length_and_pitch(
    container: str, file_format: str, codec: str
) -> None:
    samples = tone(seconds=2.0, rate=48_000)
    clip = decoded(coded_bytes(samples, rate=48_000, container=file_format, codec=codec), container)
    assert (clip.measures["container"], clip.sample_rate) == (container, 48_000)
    assert clip.measures["duration_seconds"] == pytest.approx(2.0, abs=0.08)
    assert loudest_hertz(clip) == pytest.approx(220, abs=2)


@pytest.mark.parametrize(("container", "subtype"), [("flac", "PCM_24"), ("ogg", "VORBIS")])
def test_flac_and_vorbis_decode(container: str, subtype: str) -> None:
    clip = decoded(wav_bytes(format=container.upper(), subtype=subtype), container)
    assert clip.measures["duration_seconds"] == pytest.approx(1.5, abs=0.01)
    assert clip.measures["codec"] in ("flac", "vorbis")


def test_webm_without_a_duration_is_measured_by_decoding() -> None:
    content = coded_bytes(
        tone(seconds=2.0, rate=48_000), rate=48_000, container="webm", codec="libopus", is_live=True
    )
    assert decoded(content, "webm").measures["duration_seconds"] == pytest.approx(2.0, abs=0.08)


def test_eight_channels_at_192_khz_become_their_mean() -> None:
    samples = tone(seconds=1.0, rate=192_000, channels=8, level=0.4)
    clip = decoded(wav_bytes(samples, rate=192_000, subtype="FLOAT"))
    assert (clip.sample_rate, clip.measures["channels"]) == (192_000, 8)
    assert np.allclose(clip.waveform, samples.mean(axis=1), atol=1e-6)


def test_only_the_first_audio_stream_is_used() -> None:
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="webm") as opened:
        streams: list[Any] = [opened.add_stream("libopus", rate=48_000) for _ in range(2)]
        for stream in streams:
            stream.layout = "mono"
        for index, stream in enumerate(streams):
            pitch = 220.0 if index == 0 else 880.0
            wave = 0.3 * np.sin(2 * np.pi * pitch * np.arange(96_000) / 48_000)
            for start in range(0, 96_000, 960):
                block = wave[None, start : start + 960].astype(np.float32)
                frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(block), "flt", "mono")
                frame.sample_rate, frame.pts = 48_000, start
                opened.mux(stream.encode(frame))
            opened.mux(stream.encode(None))

    clip = decoded(buffer.getvalue(), "webm")

    spectrum = np.abs(np.fft.rfft(clip.waveform[:48_000]))
    assert clip.measures["duration_seconds"] == pytest.approx(2.0, abs=0.08)
    assert loudest_hertz(clip) == pytest.approx(220, abs=2)
    assert spectrum[880] < spectrum[220] / 100


def flac_that_claims(num_samples: int, honest: bytes) -> bytes:
    # STREAMINFO: 4 bytes magic, 4 of block header, 10 of sizes, then 20+3+5+36 bits.
    (packed,) = struct.unpack(">Q", honest[18:26])
    return honest[:18] + struct.pack(">Q", packed >> 36 << 36 | num_samples) + honest[26:]


@pytest.mark.parametrize("declared", [1, 2**35])
def test_flac_whose_header_lies_about_its_length_is_measured_by_decoding(declared: int) -> None:
    clip = decoded(flac_that_claims(declared, wav_bytes(format="FLAC")), "flac")
    assert clip.measures["duration_seconds"] == pytest.approx(1.5)


def test_flac_that_claims_a_second_and_holds_an_hour_is_stopped() -> None:
    silence = np.zeros((3600 * 8_000, 1), dtype=np.float32)
    silence[::400] = 0.1
    content = flac_that_claims(8_000, wav_bytes(silence, rate=8_000, format="FLAC"))
    assert refused(content, "flac", in_child=True) == "clip_too_long"


def test_hour_of_audio_in_a_megabyte_is_refused_without_being_unpacked() -> None:
    hour = np.zeros((3600 * 16_000, 1), dtype=np.float32)
    content = wav_bytes(hour, rate=16_000, format="FLAC")
    assert len(content) < 1_000_000
    assert refused(content, "flac", in_child=True, megabytes=320) == "clip_too_long"


NOT_FINITE = np.where(np.arange(36_000)[:, None] == 100, np.nan, 0.1).astype(np.float32)
WAV = wav_bytes(seconds=1.5)
ABSURD_RATE = WAV[:24] + struct.pack("<I", 2**31 - 1) + WAV[28:]


@pytest.mark.parametrize(
    ("content", "container", "code"),
    [
        (wav_bytes(seconds=0.5, rate=8_000), "wav", "clip_too_short"),
        (wav_bytes(seconds=60.5, rate=8_000), "wav", "clip_too_long"),
        (wav_bytes(tone(seconds=1.5, channels=9)), "wav", "clip_too_many_channels"),
        (wav_bytes(np.zeros((36_000, 1), dtype=np.float32)), "wav", "clip_silent"),
        (wav_bytes(NOT_FINITE, subtype="FLOAT"), "wav", "clip_not_finite"),
        (ABSURD_RATE, "wav", "clip_rate_unsupported"),
        (wav_bytes(seconds=1.5, subtype="IMA_ADPCM"), "wav", "clip_undecodable"),
        (WAV, "flac", "clip_undecodable"),
    ],
    ids=["short", "long", "nine channels", "silent", "no numbers", "rate", "codec", "container"],
)
def test_clip_that_cannot_be_used_is_refused(content: bytes, container: str, code: str) -> None:
    assert refused(content, container) == code


@pytest.mark.parametrize("container", ["wav", "flac", "mp3", "ogg", "m4a", "webm"])
def test_text_file_with_a_clips_name_is_refused(container: str) -> None:
    content = b"These are words, and no sound at all. " * 200
    found = refused(content, container, in_child=container == "m4a")
    assert found in ("clip_undecodable", "clip_no_audio")


def test_file_without_an_audio_stream_is_refused() -> None:
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as opened:
        stream = opened.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        picture = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), dtype=np.uint8), "rgb24")
        for _ in range(5):
            opened.mux(stream.encode(picture))
        opened.mux(stream.encode(None))
    assert refused(buffer.getvalue(), "m4a") == "clip_no_audio"


def test_decoding_that_takes_too_long_or_too_much_memory_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounded_child, "LEAST_PROCESSOR_SHARE", 0.0)  # however busy others are
    assert refused(WAV, in_child=True, wall_seconds=0.05) == "clip_decode_timeout"
    content = wav_bytes(tone(seconds=59, rate=192_000), rate=192_000)
    assert refused(content, in_child=True, megabytes=256) == "clip_decode_memory"


def test_child_gets_nothing_of_our_environment_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TTS_SECRET_KEY", "hush")
    seen: list[set[str]] = []
    real = subprocess.Popen

    def watch(*arguments: Any, **options: Any) -> Any:
        seen.append(set(options["env"]))
        return real(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", watch)
    decode_clip(WAV, container="wav", limits=LIMITS, scratch=tmp_path)
    with pytest.raises(ClipError):
        decode_clip(b"nothing", container="wav", limits=LIMITS, scratch=tmp_path)

    assert seen == [{"PYTHONHASHSEED", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"}] * 2
    assert list(tmp_path.iterdir()) == []


def test_usable_clip_comes_with_its_warnings() -> None:
    samples = tone(seconds=2.0, rate=8_000, level=3.0)
    samples[4_000:] = 0
    clip = decoded(wav_bytes(samples, rate=8_000), in_child=True)
    codes = {warning["code"] for warning in clip.measures["warnings"]}
    assert {"clip_short", "clip_clipped", "clip_low_rate", "clip_mostly_silent"} == codes


def test_waveform_of_a_clip_is_drawn_in_400_values() -> None:
    samples = tone(seconds=2.0)
    samples[: len(samples) // 2] *= 0.1
    peaks = decoded(wav_bytes(samples)).measures["peaks"]
    loudest = round(255 * float(np.abs(samples).max()))
    assert len(peaks) == 400
    assert peaks[100] == pytest.approx(loudest / 10, abs=2)
    assert peaks[300] == pytest.approx(loudest, abs=2)


FINE = {"duration_seconds": 5.0, "silence_share": 0.1, "clipped_share": 0.0, "sample_rate": 44_100}


def test_level_of_full_scale_is_zero_and_of_nothing_the_floor() -> None:
    assert dbfs(1.0) == 0
    assert dbfs(0.5) == pytest.approx(-6.02, abs=0.01)
    assert dbfs(0.0) == FLOOR_DBFS


def test_square_wave_has_equal_peak_and_rms() -> None:
    waveform = np.tile(np.array([0.5, -0.5], dtype=np.float32), 8_000)
    assert measure(waveform, 16_000) == {
        "duration_seconds": 1.0,
        "peak_dbfs": -6.02,
        "rms_dbfs": -6.02,
        "silence_share": 0.0,
        "noise_floor_dbfs": -6.02,
    }


def test_silence_is_counted_in_windows_and_the_floor_is_what_is_left_between_words() -> None:
    waveform = np.full(16_000, 0.001, dtype=np.float32)
    waveform[:12_000] = 0.5
    assert measure(waveform, 16_000)["noise_floor_dbfs"] == pytest.approx(-60.0, abs=0.1)
    waveform[:] = 0
    waveform[:4_000] = 0.3
    assert measure(waveform, 16_000)["silence_share"] == pytest.approx(0.75, abs=0.02)
    short = np.full(3, 0.1, dtype=np.float32)  # less than a window
    assert measure(short, 44_100)["silence_share"] == 0.0


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({}, None),
        ({"duration_seconds": 2.9}, "clip_short"),
        ({"duration_seconds": 30.1}, "clip_long"),
        ({"silence_share": 0.51}, "clip_mostly_silent"),
        ({"clipped_share": 0.002}, "clip_clipped"),
        ({"sample_rate": 8_000}, "clip_low_rate"),
        ({"damaged_packets": 1}, "clip_damaged"),
    ],
)
def test_each_weakness_has_its_own_warning(change: dict[str, float], code: str | None) -> None:
    assert [one["code"] for one in warnings_for(FINE | change)] == ([code] if code else [])


def test_tags_in_any_encoding_leave_the_clip_good() -> None:
    """Programs of former years wrote them in that of their country."""
    tag = b"INAM" + struct.pack("<I", 4) + "Bär".encode("latin-1") + b"\0"
    content = wav_bytes() + b"LIST" + struct.pack("<I", 4 + len(tag)) + b"INFO" + tag
    content = content[:4] + struct.pack("<I", len(content) - 8) + content[8:]

    assert decoded(content).measures["duration_seconds"] == pytest.approx(1.5, abs=0.01)
