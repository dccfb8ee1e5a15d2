"""Change and measure audio that comes in blocks: rate, speed, loudness, peaks, waveform."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import av
import numpy as np
import numpy.typing as npt
from av.filter import Graph
from av.filter.context import FilterContext

from synth.contract import AudioArray


def new_graph() -> Graph:
    """Return a graph that makes no threads: no filter here uses them, and listeners are many."""
    graph = Graph()
    graph.threads = 1
    return graph


def link(graph: Graph, *steps: FilterContext, sample_rate: int) -> Graph:
    """Configure the graph as a chain of these filters for mono float32 audio, and return it."""
    source = graph.add_abuffer(sample_rate=sample_rate, format="fltp", layout="mono")
    graph.link_nodes(source, *steps, graph.add("abuffersink")).configure()
    return graph


def push(graph: Graph, block: AudioArray, sample_rate: int, position: int) -> None:
    """Give the graph a block, float32 [n], that starts at this sample."""
    frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(block[None, :]), "fltp", "mono")
    frame.sample_rate, frame.pts = sample_rate, position
    graph.push(frame)


def frames(graph: Graph) -> Iterator[av.AudioFrame]:
    """Yield what the filters have made so far."""
    while True:
        try:
            frame = graph.pull()
        except (BlockingIOError, EOFError):
            return
        except av.FFmpegError as error:
            if error.errno in (errno.EAGAIN, errno.EPIPE):
                return
            raise
        if isinstance(frame, av.AudioFrame):
            yield frame


def ready(graph: Graph) -> Iterator[AudioArray]:
    """Yield the samples that the filters have made so far, float32 [n]."""
    for frame in frames(graph):
        yield np.ascontiguousarray(frame.to_ndarray()[0], dtype=np.float32)


class BlockFilter:
    """Put blocks, float32 [n], through filters, and cut or fill up to the length wanted."""

    def __init__(
        self,
        graph: Graph,
        sample_rate: int,
        *,
        num_out: Callable[[int], int],
        tail_seconds: float = 0.0,
    ) -> None:
        """Take filters for one signal.

        Args:
            num_out: how many samples are to come of those that went in; of none come none.
            tail_seconds: the silence that drives out what the filters keep back.
        """
        self._graph, self._sample_rate = graph, sample_rate
        self._num_out, self._tail_seconds = num_out, tail_seconds
        self._num_in = self._num_made = 0

    def run(self, blocks: Iterable[AudioArray]) -> Iterator[AudioArray]:
        """Yield what the filters make of all blocks."""
        for block in blocks:
            yield from self.push(block)
        yield from self.end()

    def push(self, block: AudioArray) -> list[AudioArray]:
        """Return what has become of the samples so far."""
        if not len(block):
            return []
        push(self._graph, block, self._sample_rate, self._num_in)
        self._num_in += len(block)
        made = list(ready(self._graph))
        self._num_made += sum(map(len, made))
        return made

    def end(self) -> list[AudioArray]:
        """Return the rest; call it once, after the last block."""
        if not self._num_in:
            return []
        missing = max(0, self._num_out(self._num_in) - self._num_made)
        if self._tail_seconds:
            silence = np.zeros(round(self._tail_seconds * self._sample_rate), np.float32)
            push(self._graph, silence, self._sample_rate, self._num_in)
        self._graph.push(None)
        rest = np.concatenate([*ready(self._graph), np.zeros(missing, np.float32)])
        return [rest[:missing]]


# Twice the usual length of the filter: tones come out 100 dB above any error, and what lies 10 %
# beyond the new range 90 dB down, against 44 dB.
_OPTIONS = "filter_size=64:cutoff=0.97"


def resample(blocks: Iterable[AudioArray], rate: int, new_rate: int) -> Iterator[AudioArray]:
    """Yield mono audio, float32 [n], at `new_rate` Hz; an equal rate passes it on untouched."""
    return iter(blocks) if rate == new_rate else resampler(rate, new_rate).run(blocks)


def resampler(rate: int, new_rate: int) -> BlockFilter:
    """Return what takes mono audio at `rate` Hz and gives it at `new_rate` Hz, another one.

    Of N samples come round(N * new_rate / rate), the first of both at the same moment.
    """
    graph = new_graph()
    link(graph, graph.add("aresample", f"{new_rate}:{_OPTIONS}"), sample_rate=rate)
    return BlockFilter(graph, rate, num_out=lambda num_in: round(num_in * new_rate / rate))


_TAIL_SECONDS = 0.5
_MAX_FACTOR = 2.0  # of one filter: beyond it `atempo` skips samples instead of blending them


def stretcher(sample_rate: int, *, speed: float, num_out: Callable[[int], int]) -> BlockFilter:
    """Return what takes mono audio and gives it at `speed` times its pace, the pitch unchanged.

    Args:
        speed: greater than 0 and not 1.
        num_out: how many samples are to come of those that went in.
    """
    # As many equal filters as keep each one's factor between 1/2 and 2.
    count = max(1, math.ceil(abs(math.log2(speed)) / math.log2(_MAX_FACTOR)))
    graph = new_graph()
    steps = [graph.add("atempo", repr(speed ** (1 / count))) for _ in range(count)]
    linked = link(graph, *steps, sample_rate=sample_rate)
    return BlockFilter(linked, sample_rate, num_out=num_out, tail_seconds=_TAIL_SECONDS)


def stretch(
    blocks: Iterable[AudioArray], sample_rate: int, *, speed: float, num_out: int | None = None
) -> Iterator[AudioArray]:
    """Yield mono audio, float32 [n], at `speed` times its pace; 1.0 passes it on untouched.

    Args:
        blocks: float32 [n] each, in order; one of them is in memory at a time.
        speed: greater than 0; 2.0 takes half the time, to the sample.
        num_out: samples to make in all where that is known better than by rounding, which lets
            pieces of a longer text be stretched apart and still end where the whole would.
    """
    if speed == 1.0:
        return iter(blocks)
    return stretcher(
        sample_rate,
        speed=speed,
        num_out=lambda num_in: round(num_in / speed) if num_out is None else num_out,
    ).run(blocks)


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
        self._sample_rate = sample_rate
        self._graph = new_graph()
        step = self._graph.add("ebur128", "metadata=1:framelog=quiet")
        link(self._graph, step, sample_rate=sample_rate)
        self._peak = TruePeakMeter()
        self._position = 0
        self._last: av.AudioFrame | None = None

    def push(self, block: AudioArray) -> None:
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
        metadata = dict(self._last.metadata) if self._last is not None else {}
        lufs = float(metadata.get("lavfi.r128.I", "nan"))
        integrated = round(lufs, 2) if lufs > FLOOR_LUFS else None
        return Loudness(integrated, round(max(FLOOR_DBTP, dbtp), 2))

    def _note(self) -> None:
        for frame in frames(self._graph):
            # One in ten of a second; the last of a signal may be shorter and says nothing.
            if frame.samples >= self._sample_rate // 10:
                self._last = frame


def measure_loudness(blocks: Iterable[AudioArray], sample_rate: int) -> Loudness:
    """Return the loudness of mono audio, float32 [n] each, at `sample_rate` Hz."""
    meter = LoudnessMeter(sample_rate)
    for block in blocks:
        meter.push(block)
    return meter.close()


FloatArray = npt.NDArray[np.float32]

TAPS = 32  # of each phase; a sample's neighbours that its filter looks at, half on each side
BEFORE, AFTER = TAPS // 2 - 1, TAPS // 2
_PHASES = 8
_PIECE = 2048  # samples that are looked at, or passed over, together
_STEPS = np.arange(-BEFORE, AFTER + 1)


def _make_filters() -> list[FloatArray]:
    """Return the windowed sincs of the moments between two samples."""
    distances = (_STEPS - phase / _PHASES for phase in range(1, _PHASES))
    edge = TAPS / 2 + 0.5
    found = [
        np.sinc(d) * (np.i0(8.0 * np.sqrt(1 - (d / edge) ** 2)) / np.i0(8.0)) for d in distances
    ]
    return [(taps / taps.sum()).astype(np.float32) for taps in found]


_FILTERS = _make_filters()
# No moment between samples can be louder than this times the loudest sample around it.
BOUND = float(max(np.abs(taps).sum() for taps in _FILTERS))


def peaks_from(samples: AudioArray) -> FloatArray:
    """Return for each sample the greatest level from it up to the next one.

    Args:
        samples: float32 [BEFORE + n + AFTER]; the filters need those at both ends.

    Returns:
        float32 [n], linear.
    """
    middle = samples[BEFORE : len(samples) - AFTER]
    highest = np.abs(middle)
    for taps in _FILTERS:
        between = np.correlate(samples, taps, mode="valid")
        np.maximum(highest, np.abs(between), out=highest)
    return highest


class TruePeakMeter:
    """Keep the greatest level of a signal that comes in blocks."""

    def __init__(self) -> None:
        self._highest = 0.0
        self._kept: FloatArray = np.zeros(BEFORE, dtype=np.float32)

    def push(self, block: AudioArray) -> None:
        samples = np.concatenate((self._kept, block))
        count = len(samples) - BEFORE - AFTER
        if count <= 0:
            self._kept = samples
            return
        self._look(samples, count)
        self._kept = samples[count:]

    def close(self) -> float:
        """Return the greatest level, linear; call it once, after the last block."""
        self.push(np.zeros(AFTER + BEFORE, dtype=np.float32))
        return self._highest

    def _look(self, samples: FloatArray, count: int) -> None:
        """Look at pieces from the loudest on, down to where none can be louder than was found."""
        starts = range(0, count, _PIECE)
        pieces = [samples[start : start + _PIECE + BEFORE + AFTER] for start in starts]
        levels = [float(np.abs(piece).max()) for piece in pieces]
        for index in np.argsort(levels)[::-1]:
            if levels[index] * BOUND <= self._highest:
                return
            self._highest = max(self._highest, float(peaks_from(pieces[index]).max()))


# A voice's peaks come every 3 to 12 ms: the gain stays down from one to the next, so that it does
# not follow the wave itself, which would be heard as distortion.
_REACH_SECONDS = 0.015


class PeakLimiter:
    """Limit one signal; `lowest_gain` is, afterwards, the most that it was turned down."""

    def __init__(self, sample_rate: int, *, ceiling: float) -> None:
        """Prepare for a signal at `sample_rate`; `ceiling` is linear, above 0."""
        self.lowest_gain = 1.0
        self._ceiling = ceiling
        self._reach = max(1, round(_REACH_SECONDS * sample_rate))
        self._margin = 2 * self._reach + max(BEFORE, AFTER) + 1

    def limit(self, blocks: Iterable[AudioArray]) -> Iterator[AudioArray]:
        """Yield as many samples as come in, float32 [n]; none of them, nor the curve between them,
        goes beyond the ceiling by more than a rounding error.
        """
        silence = np.zeros(self._margin, dtype=np.float32)
        held = silence
        for block in chain(blocks, (silence,)):
            held = np.concatenate((held, block))
            if len(held) > 2 * self._margin:
                yield self._limit(held)
                held = held[len(held) - 2 * self._margin :]

    def _limit(self, samples: AudioArray) -> AudioArray:
        """Return the samples without the margins on both sides."""
        inner = samples[self._margin : len(samples) - self._margin]
        if float(np.abs(samples).max()) * BOUND <= self._ceiling:
            return inner
        levels = peaks_from(samples)  # of samples[BEFORE:-AFTER], each up to its next
        around = np.maximum(levels[1:], levels[:-1])  # of samples[BEFORE + 1:-AFTER]
        needed = np.minimum(1.0, self._ceiling / np.maximum(around, 1e-9))
        spare = self._margin - 2 * self._reach
        needed = needed[spare - BEFORE - 1 : len(needed) - (spare - AFTER)]
        # The mean of minima over the same reach is never above what its middle needs.
        width = 2 * self._reach + 1
        lowest = _sliding_minimum(needed, self._reach).astype(np.float64)
        sums = np.cumsum(np.concatenate(([0.0], lowest)))
        gain = (sums[width:] - sums[:-width]) / width
        self.lowest_gain = min(self.lowest_gain, float(gain.min()))
        limited: AudioArray = (inner * gain).astype(np.float32)
        return limited


def _sliding_minimum(values: npt.NDArray[np.float32], reach: int) -> npt.NDArray[np.float32]:
    """Return the least of each value and `reach` on both sides; 2 * `reach` fewer than came in."""
    width, lowest = 1, values
    while 2 * width <= 2 * reach + 1:
        lowest = np.minimum(lowest[:-width], lowest[width:])
        width *= 2
    rest = 2 * reach + 1 - width
    return np.minimum(lowest[:-rest], lowest[rest:]) if rest else lowest


_HIGHEST_PEAK = 255  # of a waveform's numbers


class WaveformPeaks:
    """Collect the parts of a signal whose length is known and which comes in blocks."""

    def __init__(self, num_samples: int, *, most: int) -> None:
        """Prepare at most `most` parts; a signal of fewer samples has one for each."""
        self._num_samples = max(1, num_samples)
        self._levels = np.zeros(min(most, num_samples), dtype=np.float32)
        self._position = 0

    def push(self, block: AudioArray) -> None:
        """Take the next samples, float32 [n]; what goes beyond the known length is left out."""
        count = len(self._levels)
        levels = np.abs(block[: max(0, self._num_samples - self._position)])
        if not count or not len(levels):
            return
        first = self._position * count // self._num_samples
        last = (self._position + len(levels) - 1) * count // self._num_samples
        edges = [-(-part * self._num_samples // count) for part in range(first + 1, last + 1)]
        starts = [0, *(edge - self._position for edge in edges)]
        found = np.maximum.reduceat(levels, starts)
        np.maximum(self._levels[first : last + 1], found, out=self._levels[first : last + 1])
        self._position += len(levels)

    def values(self) -> list[int]:
        """Return the parts' levels, 0 for silence, 255 for full scale and beyond."""
        scaled = np.rint(np.minimum(self._levels, 1.0) * _HIGHEST_PEAK)
        return [int(value) for value in scaled]


def peaks_of(waveform: AudioArray, *, most: int) -> list[int]:
    """Return at most `most` values, 0 to 255, of a whole mono signal float32 [N]."""
    peaks = WaveformPeaks(len(waveform), most=most)
    peaks.push(waveform)
    return peaks.values()
