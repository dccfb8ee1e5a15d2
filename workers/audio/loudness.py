"""Measure loudness as ITU-R BS.1770-4 and EBU R 128 define it, by FFmpeg's `ebur128`.

A sine of 997 Hz at full scale has -3.01 LUFS on one channel. Files here have one channel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import av
from av.filter import Graph

from synth.contract import AudioArray
from workers.audio.filter_graph import frames, link, push
from workers.audio.peak_limiter import TruePeakMeter

FLOOR_LUFS = -70.0  # the absolute gate: what is below counts as silence
FLOOR_DBTP = -120.0  # stands for digital silence: JSON knows no minus infinity


class Loudness(NamedTuple):
    """What was measured of a signal.

    `integrated_lufs` is None where nothing is above the gate, or the signal is shorter than the
    0.4 s over which loudness is defined.
    """

    integrated_lufs: float | None
    true_peak_dbtp: float


class LoudnessMeter:
    """Measure a mono signal that comes in blocks, in memory that does not grow with it."""

    def __init__(self, sample_rate: int) -> None:
        """Prepare for a signal at `sample_rate` Hz."""
        self._sample_rate = sample_rate
        self._graph = Graph()
        step = self._graph.add("ebur128", "metadata=1:framelog=quiet")
        link(self._graph, step, sample_rate=sample_rate)
        self._peak = TruePeakMeter()
        self._position = 0
        self._last: av.AudioFrame | None = None

    def push(self, block: AudioArray) -> None:
        """Take the next samples, float32 [n]."""
        if not len(block):
            return
        self._peak.push(block)
        push(self._graph, block, self._sample_rate, self._position)
        self._position += len(block)
        self._note()

    def close(self) -> Loudness:
        """Return what was measured; call it once, after the last block."""
        if self._position:
            self._graph.push(None)
            self._note()
        peak = self._peak.close()
        dbtp = 20 * math.log10(peak) if peak > 0 else FLOOR_DBTP
        return Loudness(self._read_integrated(), round(max(FLOOR_DBTP, dbtp), 2))

    def _note(self) -> None:
        for frame in frames(self._graph):
            # One in ten of a second; the last of a signal may be shorter and says nothing.
            if frame.samples >= self._sample_rate // 10:
                self._last = frame

    def _read_integrated(self) -> float | None:
        metadata = dict(self._last.metadata) if self._last is not None else {}
        lufs = float(metadata.get("lavfi.r128.I", "nan"))
        return round(lufs, 2) if lufs > FLOOR_LUFS else None


def measure_loudness(blocks: Iterable[AudioArray], sample_rate: int) -> Loudness:
    """Return the loudness of mono audio, float32 [n] each, at `sample_rate` Hz."""
    meter = LoudnessMeter(sample_rate)
    for block in blocks:
        meter.push(block)
    return meter.close()
