"""Speak faster or slower without another pitch: a chain of FFmpeg's `atempo` filters."""

from __future__ import annotations

import errno
import math
from collections.abc import Iterable, Iterator

import av
import numpy as np
from av.filter import Graph

from synth.contract import AudioArray

_TAIL_SECONDS = 0.5
_MAX_FACTOR = 2.0  # of one filter: beyond it `atempo` skips samples instead of blending them


def stretch(
    blocks: Iterable[AudioArray], sample_rate: int, *, speed: float
) -> Iterator[AudioArray]:
    """Yield mono audio, float32 [n], at `speed` times its pace; 1.0 passes it on untouched.

    Args:
        blocks: float32 [n] each, in order; one of them is in memory at a time.
        speed: greater than 0; 2.0 takes half the time, to the sample.
    """
    if speed == 1.0:
        yield from blocks
        return
    graph = _graph(sample_rate, speed)
    num_in = num_out = 0
    for block in blocks:
        _push(graph, block, sample_rate, num_in)
        num_in += len(block)
        for made in _ready(graph):
            num_out += len(made)
            yield made
    if num_in:
        yield from _rest(graph, sample_rate, num_in, round(num_in / speed) - num_out)


def _rest(graph: Graph, sample_rate: int, num_in: int, missing: int) -> Iterator[AudioArray]:
    """Yield the last `missing` samples: the filters keep some back, which silence drives out."""
    _push(graph, np.zeros(round(_TAIL_SECONDS * sample_rate), np.float32), sample_rate, num_in)
    graph.push(None)
    for made in _ready(graph):
        if missing > 0:
            yield made[:missing]
        missing -= len(made)
    if missing > 0:
        yield np.zeros(missing, np.float32)


def _push(graph: Graph, block: AudioArray, sample_rate: int, position: int) -> None:
    frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(block[None, :]), "fltp", "mono")
    frame.sample_rate, frame.pts = sample_rate, position
    graph.push(frame)


def _graph(sample_rate: int, speed: float) -> Graph:
    """Return a graph of as many equal filters as keep each one's factor between 1/2 and 2."""
    count = max(1, math.ceil(abs(math.log2(speed)) / math.log2(_MAX_FACTOR)))
    graph = Graph()
    steps = [graph.add_abuffer(sample_rate=sample_rate, format="fltp", layout="mono")]
    steps += [graph.add("atempo", repr(speed ** (1 / count))) for _ in range(count)]
    steps.append(graph.add("abuffersink"))
    graph.link_nodes(*steps).configure()
    return graph


def _ready(graph: Graph) -> Iterator[AudioArray]:
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
        yield np.ascontiguousarray(frame.to_ndarray()[0], dtype=np.float32)
