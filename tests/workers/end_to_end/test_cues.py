"""The times that the API tells of a file are those at which its segments are heard in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import soundfile
from django.core.files.storage import default_storage
from rest_framework.test import APIClient

from synth.contract import AudioArray
from synth.models import Export, ExportCues, RenderJob, Segment
from synth.transitions.claims import claim_segments
from synth.transitions.segments import fail_segment, reopen_segments
from tests.factories import CODEC_FINGERPRINT, make_job, make_user
from tests.workers.conftest import MiniatureProcess
from tests.workers.rendering.voiced import RATE, make_export_of, render_with

pytestmark = pytest.mark.django_db(transaction=True)


def tone(num_samples: int, hertz: float) -> AudioArray:
    t = np.arange(num_samples) / RATE
    return np.asarray(0.4 * np.cos(2 * np.pi * hertz * t), dtype=np.float32)


TAKES = [tone(11_111, 300), tone(777, 500), tone(30_001, 700), tone(24_000, 900)]
PAUSES = [333, 0, 1_001, 250]


def make_file(process: MiniatureProcess, **options: Any) -> tuple[RenderJob, Export]:
    """Return a job of four tones with odd lengths and pauses, and its file."""
    job = make_job(segments=4, owner=make_user(), **{"format": "flac"} | options)
    for index, pause in enumerate(PAUSES):
        Segment.objects.filter(index=index).update(pause_after_ms=pause)
    render_with(TAKES)
    export = make_export_of(process)
    job.refresh_from_db()
    return job, export


def body(job: RenderJob) -> dict[str, Any]:
    client = APIClient()
    client.force_authenticate(job.owner)
    answer = client.get(f"/api/v1/jobs/{job.pk}/timestamps")
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def read(export: Export) -> tuple[AudioArray, int]:
    samples, rate = soundfile.read(default_storage.path(export.key), dtype="float32")
    return samples, rate


@pytest.mark.parametrize("sample_rate", [None, 16_000, 44_100])
@pytest.mark.parametrize("speed", [0.25, 0.7, 1.0, 1.3, 4.0])
def test_segments_are_heard_from_their_first_sample_to_their_last(
    process: MiniatureProcess, speed: float, sample_rate: int | None
) -> None:
    job, export = make_file(process, speed=speed, sample_rate=sample_rate)

    samples, rate = read(export)
    shown = body(job)
    is_spoken = np.zeros(len(samples), dtype=bool)
    for one in shown["segments"]:
        is_spoken[one["start_sample"] : one["end_sample"]] = True
        near = samples[one["start_sample"] : one["start_sample"] + rate // 100]
        assert np.abs(near).max() > 0.1, "it begins later than is told"
    # Resampling rings for a few samples where a sound begins at once.
    spread = 80 if sample_rate else 0
    is_near = np.convolve(is_spoken, np.ones(2 * spread + 1), mode="same") > 0
    assert shown["sample_rate"] == rate == (sample_rate or RATE)
    assert not samples[~is_near].any()
    assert shown["seconds"] == export.duration_seconds == len(samples) / rate
    pause = len(samples) - shown["segments"][-1]["end_sample"]
    assert pause == pytest.approx(0.25 * rate / speed, abs=1)


def test_times_at_own_pace_are_the_sums_of_takes_and_pauses(process: MiniatureProcess) -> None:
    job, _ = make_file(process)

    position, expected = 0, []
    for take, pause in zip(TAKES, PAUSES, strict=True):
        expected.append((position, position + len(take)))
        position += len(take) + round(pause * RATE / 1000)
    shown = body(job)["segments"]
    assert [(one["start_sample"], one["end_sample"]) for one in shown] == expected
    assert [(one["start"], one["end"]) for one in shown] == [
        (start / RATE, end / RATE) for start, end in expected
    ]


@pytest.mark.parametrize("speed", [0.8, 1.0])
def test_failed_segment_is_neither_heard_nor_told(process: MiniatureProcess, speed: float) -> None:
    job = make_job(segments=3, format="wav", owner=make_user(), speed=speed)
    first = claim_segments(worker="gpu", limit=1, codec_fingerprint=CODEC_FINGERPRINT)
    fail_segment(first[0], code="bad", message="It is bad.")
    render_with(TAKES[:2])
    export = make_export_of(process)

    samples, rate = read(export)
    shown = body(job)
    starts = [round(position / speed) for position in (0, len(TAKES[0]) + 7_200)]
    job.refresh_from_db()
    assert job.status == RenderJob.Status.PARTIAL
    assert [one["index"] for one in shown["segments"]] == [1, 2]
    assert [one["start_sample"] for one in shown["segments"]] == starts
    assert shown["seconds"] == len(samples) / rate


def test_file_that_is_made_again_is_told_anew(process: MiniatureProcess) -> None:
    job, export = make_file(process)
    before = body(job)["segments"]
    segment = Segment.objects.get(index=0)
    reopen_segments([segment.pk])
    RenderJob.objects.update(status="running")
    export.delete()
    render_with([tone(5_000, 300)])
    make_export_of(process)

    after = body(job)["segments"]
    assert ExportCues.objects.count() == 1
    assert after[0]["end_sample"] == 5_000
    assert before[1]["start_sample"] - after[1]["start_sample"] == 11_111 - 5_000
