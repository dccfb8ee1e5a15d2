"""Segments through an engine: what is counted, and that one cut short is no figure."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from lab.bench import segments
from lab.bench.report import BenchFailedError
from synth.contract import FinishReason, RenderSpec, Sampling, SegmentAudio, Timings
from tests import services
from tests.lab.bench.bench_options import run


def test_all_frames_of_all_segments_are_counted() -> None:
    sizes = ("--slots", "2", "--segments", "5", "--frames", "6", "--voice-frames", "8")

    row = run(segments, *sizes, "--text-letters", "20").rows[0]

    assert row["segments"] == 5
    assert 5 * 3 <= row["frames"] <= 5 * 9  # half as long to half as long again
    assert row["frames_per_second"] == pytest.approx(row["frames"] / row["wall_seconds"])
    assert row["acoustic_tokens_per_second"] == pytest.approx(10 * row["frames_per_second"])
    assert row["batch"] == 2
    assert (row["graphs"], row["graph_nodes"]) == ("off", None)
    assert row["kernels"] == ("off" if services.why_missing("compiler") else "on")


def test_the_full_rate_ends_where_slots_begin_to_stand_empty() -> None:
    frames, ended = [10, 20, 30, 40], [4.0, 1.0, 2.0, 9.0]
    assert segments.full_rate(frames, ended, slots=2) == (20 + 30) / 2.0
    assert segments.full_rate(frames, ended, slots=1) == (10 + 20 + 30) / 4.0
    assert segments.full_rate(frames, ended, slots=3) is None


def test_a_segment_that_ends_early_is_no_figure() -> None:
    take = SegmentAudio(
        np.zeros((10, 5), np.int16),
        np.zeros(5, np.float32),
        44_100,
        FinishReason.FRAME_LIMIT,
        Timings(0.0, 0.0, 0.0, 0.0),
    )
    spec = RenderSpec("text", None, Sampling(max_frames=5))

    segments._check(spec, take)
    with pytest.raises(BenchFailedError, match="of 5 frames ended with 5"):
        segments._check(spec, dataclasses.replace(take, finish_reason=FinishReason.END))
    with pytest.raises(BenchFailedError, match="of 6 frames ended with 5"):
        segments._check(dataclasses.replace(spec, sampling=Sampling(max_frames=6)), take)
