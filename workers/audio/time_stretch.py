"""Speak faster or slower without another pitch: a chain of FFmpeg's `atempo` filters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
from av.filter import Graph

from synth.contract import AudioArray
from workers.audio.filter_graph import link, push, ready

_TAIL_SECONDS = 0.5
_MAX_FACTOR = 2.0  # of one filter: beyond it `atempo` skips samples instead of blending them


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
        yield from blocks
        return
    graph = _graph(sample_rate, speed)
    num_in = made_so_far = 0
    for block in blocks:
        push(graph, block, sample_rate, num_in)
        num_in += len(block)
        for made in ready(graph):
            made_so_far += len(made)
            yield made
    if num_in:
        missing = (round(num_in / speed) if num_out is None else num_out) - made_so_far
        yield from _rest(graph, sample_rate, num_in, missing)


def _rest(graph: Graph, sample_rate: int, num_in: int, missing: int) -> Iterator[AudioArray]:
    """Yield the last `missing` samples: the filters keep some back, which silence drives out."""
    push(graph, np.zeros(round(_TAIL_SECONDS * sample_rate), np.float32), sample_rate, num_in)
    graph.push(None)
    for made in ready(graph):
        if missing > 0:
            yield made[:missing]
        missing -= len(made)
    if missing > 0:
        yield np.zeros(missing, np.float32)


def _graph(sample_rate: int, speed: float) -> Graph:
    """Return a graph of as many equal filters as keep each one's factor between 1/2 and 2."""
    count = max(1, math.ceil(abs(math.log2(speed)) / math.log2(_MAX_FACTOR)))
    graph = Graph()
    steps = [graph.add("atempo", repr(speed ** (1 / count))) for _ in range(count)]
    return link(graph, *steps, sample_rate=sample_rate)
