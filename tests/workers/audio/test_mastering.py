"""A file is as loud, as fast sampled and as finely coded as its job asks, and its report says so.

What a file holds is measured here by the recommendation's formulas, not by the code under test.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from django.core.files.storage import default_storage

from synth.audio import writers
from synth.contract import AudioArray
from synth.models import Export, RenderJob, Segment
from tests.factories import make_job
from tests.workers.audio.bs1770 import integrated_lufs, true_peak_dbtp
from tests.workers.conftest import MiniatureProcess
from tests.workers.rendering.takes_support import RATE, make_export_of, render_with, voiced
from workers.audio import mastering

pytestmark = pytest.mark.django_db(transaction=True)
FORMS = ["wav", "flac", "mp3", "opus", "aac", "pcm"]
MORE = pytest.mark.thorough  # pairs of values that the others have


def finished(process: MiniatureProcess, takes: list[AudioArray], **options: Any) -> Export:
    make_job(segments=len(takes), **options)
    render_with(takes)
    return make_export_of(process)


def path_of(export: Export) -> Path:
    return Path(default_storage.path(export.key))


def heard(export: Export) -> tuple[AudioArray, int]:
    path = path_of(export)
    if export.format == "pcm":
        raw = np.frombuffer(path.read_bytes(), dtype="<i2").astype(np.float32)
        return raw / np.float32(2**15), export.report["sample_rate"]
    with av.open(str(path)) as opened:
        stream = opened.streams.audio[0]
        to_float = av.AudioResampler(format="fltp", layout="mono")
        blocks = [
            one.to_ndarray()[0]
            for frame in opened.decode(stream)
            for one in to_float.resample(frame)
        ]
        return np.concatenate(blocks), stream.codec_context.sample_rate


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("target", [-16.0, pytest.param(-23.0, marks=MORE)])
def test_file_has_the_loudness_that_its_job_asks_for(
    process: MiniatureProcess, form: str, target: float
) -> None:
    export = finished(
        process, [voiced(2.0), voiced(3.0, level=0.1, seed=1)], format=form, loudness=target
    )

    samples, rate = heard(export)
    lufs, dbtp = integrated_lufs(samples, rate), true_peak_dbtp(samples)
    assert lufs == pytest.approx(target, abs=0.5)
    assert dbtp <= -0.9
    assert export.report["target_reached"] is True
    assert export.report["target_lufs"] == target
    assert export.report["loudness_lufs"] == pytest.approx(lufs, abs=0.2)
    assert export.report["true_peak_dbtp"] == pytest.approx(dbtp, abs=0.3)


def test_one_gain_for_the_whole_file_keeps_what_is_soft_soft(process: MiniatureProcess) -> None:
    takes = [voiced(2.0, level=0.02), voiced(2.0, level=0.01, seed=1)]
    export = finished(process, takes, format="flac", loudness=-30.0)
    samples, _ = heard(export)
    joined = np.concatenate((takes[0], np.zeros(round(0.3 * RATE), np.float32), takes[1]))
    is_heard = np.abs(joined) > 0.002
    gains = samples[: len(joined)][is_heard] / joined[is_heard]
    assert export.report["limiter_db"] == 0
    assert 20 * np.log10(np.median(gains)) == pytest.approx(export.report["gain_db"], abs=0.05)
    assert np.percentile(gains, 99) / np.percentile(gains, 1) == pytest.approx(1, abs=0.05)


def test_target_that_peaks_forbid_is_said_to_be_missed(process: MiniatureProcess) -> None:
    export = finished(process, [voiced(3.0)], format="wav", loudness=-6.0)
    report = export.report
    assert report["target_reached"] is False
    assert "peaks" in report["note"]
    assert report["loudness_lufs"] < -6.5
    assert report["true_peak_dbtp"] <= mastering.PEAK_LIMIT_DBTP
    assert report["limiter_db"] > 3


@pytest.mark.parametrize("seconds", [0.2, 3.0])
def test_silence_is_not_made_louder(process: MiniatureProcess, seconds: float) -> None:
    silence = np.zeros(round(seconds * RATE), dtype=np.float32)
    export = finished(process, [silence], format="wav", loudness=-16.0)
    assert export.report["loudness_lufs"] is None
    assert (export.report["gain_db"], export.report["target_reached"]) == (0, False)
    assert "silent" in export.report["note"]
    assert not heard(export)[0].any()


def test_file_without_a_target_is_the_takes_as_they_are(process: MiniatureProcess) -> None:
    take = voiced(1.0, level=0.99)
    export = finished(process, [take], format="flac")
    report = export.report
    assert np.abs(heard(export)[0][: len(take)] - take).max() <= 2**-15
    assert (report["gain_db"], report["target_lufs"], report["target_reached"]) == (0, None, None)
    assert report["true_peak_dbtp"] > -1


@pytest.mark.parametrize(
    ("form", "rate"),
    [
        *[(form, 16_000) for form in FORMS],
        *[pytest.param(form, 8_000, marks=MORE) for form in ("wav", "mp3", "opus", "pcm")],
        *[pytest.param(form, 44_100, marks=MORE) for form in ("wav", "flac", "mp3", "aac", "pcm")],
        *[pytest.param(form, 48_000, marks=MORE) for form in ("wav", "flac", "mp3", "pcm")],
        *[(form, 48_000) for form in ("opus", "aac")],
    ],
)
def test_file_has_the_sample_rate_that_its_job_asks_for(
    process: MiniatureProcess, form: str, rate: int
) -> None:
    t = np.arange(2 * RATE) / RATE
    take = (0.3 * np.sin(2 * np.pi * 440 * t)).astype(np.float32)
    export = finished(process, [take], format=form, sample_rate=rate)

    samples, found = heard(export)
    spectrum = np.abs(np.fft.rfft(samples[found // 4 : found // 4 + found]))
    # A decoder of Opus always gives 48 kHz; what was encoded stands in the stream's header.
    assert found == (48_000 if form == "opus" else rate)
    if form == "opus":
        header = path_of(export).read_bytes()
        at = header.index(b"OpusHead") + 12
        assert int.from_bytes(header[at : at + 4], "little") == rate
    assert export.report["sample_rate"] == rate
    assert np.argmax(spectrum) == pytest.approx(440, abs=1)
    assert export.duration_seconds == pytest.approx(2.3, abs=1 / rate)
    assert len(samples) / found == pytest.approx(2.3, abs=0.1)


def test_file_has_the_bit_rate_that_its_job_asks_for(
    process: MiniatureProcess, rng: np.random.Generator
) -> None:
    noise = (0.1 * rng.standard_normal(10 * RATE)).astype(np.float32)
    export = finished(process, [noise], format="mp3", bit_rate=48_000)
    assert 8 * export.size_bytes / 10.3 == pytest.approx(48_000, rel=0.02)
    assert export.report["bit_rate"] == pytest.approx(48_000, rel=0.02)


def test_report_and_waveform_are_those_of_the_written_file(process: MiniatureProcess) -> None:
    export = finished(process, [voiced(2.0), voiced(1.0, seed=2)], format="wav", speed=1.25)
    samples, rate = heard(export)
    part_of = np.arange(len(samples)) * 1000 // len(samples)
    loudest = np.zeros(1000)
    np.maximum.at(loudest, part_of, np.abs(samples))
    assert export.report["seconds"] == export.duration_seconds == len(samples) / rate
    assert len(export.peaks) == 1000
    assert np.abs(np.array(export.peaks) - 255 * loudest).max() <= 1


def test_loudness_of_a_long_file_is_found_without_holding_it(
    process: MiniatureProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (mastering, writers):  # blocks as much smaller as the file is
        monkeypatch.setattr(module, "BLOCK_SAMPLES", 1 << 15)
    make_job(segments=5, format="wav", loudness=-23.0)
    render_with([voiced(60.0, rate=8_000, level=0.05)] * 5, rate=8_000)

    tracemalloc.start()
    export = make_export_of(process)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    whole = 4 * export.report["seconds"] * 8_000
    assert export.report["target_reached"] is True
    assert peak < whole / 2, "the file was held in memory"


def test_waiting_for_nobody_ends_the_work(process: MiniatureProcess) -> None:
    make_job(segments=1, format="wav", loudness=-20.0)
    render_with([voiced(1.0)])
    segments = Segment.objects.select_related("take").order_by("index")
    takes = mastering.JoinedTakes(segments, speed=1.0)
    process.scratch.mkdir(parents=True)

    with pytest.raises(mastering.ExportUnwantedError):
        mastering.make_file(
            process.scratch / "file.wav",
            takes,
            mastering.AudioOptions("wav", loudness=-20.0),
            is_unwanted=lambda: True,
        )


def test_options_of_a_file_render_nothing_again(process: MiniatureProcess) -> None:
    finished(process, [voiced(1.0)], format="mp3", loudness=-20.0, sample_rate=16_000)
    job = RenderJob.objects.get()
    assert (job.status, job.segments_done) == (RenderJob.Status.SUCCEEDED, 1)
