"""Change the sample rate of audio that comes in blocks, by FFmpeg's libswresample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from av.filter import Graph

from synth.contract import AudioArray
from workers.audio.filter_graph import link, push, ready

# Twice the usual length of the filter: tones come out 100 dB above any error, and what lies 10 %
# beyond the new range 90 dB down, against 44 dB.
_OPTIONS = "filter_size=64:cutoff=0.97"


def resample(blocks: Iterable[AudioArray], rate: int, new_rate: int) -> Iterator[AudioArray]:
    """Yield mono audio, float32 [n], at `new_rate` Hz; an equal rate passes it on untouched.

    Of N samples come round(N * new_rate / rate), the first of both at the same moment.
    """
    if rate == new_rate:
        yield from blocks
        return
    graph = resampling_graph(rate, new_rate)
    num_in = num_out = 0
    for block in blocks:
        push(graph, block, rate, num_in)
        num_in += len(block)
        for made in ready(graph):
            num_out += len(made)
            yield made
    if not num_in:
        return
    missing = round(num_in * new_rate / rate) - num_out
    graph.push(None)
    for made in ready(graph):
        if missing > 0:
            yield made[:missing]
        missing -= len(made)
    if missing > 0:
        yield np.zeros(missing, np.float32)


def resampling_graph(rate: int, new_rate: int) -> Graph:
    """Return filters that take mono audio at `rate` Hz and give it at `new_rate` Hz."""
    graph = Graph()
    return link(graph, graph.add("aresample", f"{new_rate}:{_OPTIONS}"), sample_rate=rate)
