"""Send mono audio through FFmpeg's filters, block by block."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import av
import numpy as np
from av.filter import Graph
from av.filter.context import FilterContext

from synth.contract import AudioArray


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
