"""Replay the decoding of chunks, for the few numbers of frames and streams that chunks have."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from synth.engine.codec.capture import Capture, Work
from synth.engine.codec.config import HEAD_DIM, CodecConfig
from synth.engine.codec.decoder import CodecDecoder
from synth.engine.codec.streams.layers import rope_at
from synth.engine.codec.streams.state import StreamState
from synth.engine.codec.transformer import MAX_KEPT_POSITIONS, ROPE_ROWS
from synth.engine.slots.out_of_memory import free_cached_memory, is_out_of_memory

logger = logging.getLogger(__name__)

STREAMS = (1, 2, 4, 8)
# Of all streams of a chunk together: more frames take the device longer than launching them.
MOST_FRAMES = 64
MOST_PIECES = 6  # that a chunk of another length is cut into before it is decoded eagerly


def graph_bytes(config: CodecConfig, dtype: torch.dtype, frame_bytes: int) -> int:
    """Return what the recordings of a decoder of these sizes take at most.

    Args:
        frame_bytes: the working memory of one frame; the recordings share that of the largest.
    """
    with torch.device("meta"):
        numbers = CodecDecoder(config).runner.layout.size
    states = STREAMS[-1] * numbers * dtype.itemsize
    return states + MOST_FRAMES * frame_bytes + MAX_KEPT_POSITIONS * HEAD_DIM * 4


@dataclass(slots=True, eq=False)
class _Recorded:
    """Hold one shape's own tensors, codes int64 [B, K, n] and wave float32 [B, N], and replay."""

    codes: Tensor
    wave: Tensor
    replay: Work


class StreamGraphs:
    """Hold recordings of one decoder's chunks and the state they work on; one thread uses them.

    A recording of B streams takes fewer as well: the other rows decode something that nobody hears.
    """

    def __init__(self, decoder: CodecDecoder, sizes: Sequence[int]) -> None:
        """Allocate what all recordings share; `record` makes them.

        Args:
            sizes: the frames of the chunks that streams are decoded in.
        """
        self.decoder = decoder
        self.seconds = 0.0
        self._sizes = sorted({size for size in sizes if size <= MOST_FRAMES}, reverse=True)
        self._recorded: dict[tuple[int, int], _Recorded] = {}
        with torch.inference_mode():
            # The whole table: a longer one made later would be another tensor.
            self._rope = ROPE_ROWS.rows(0, MAX_KEPT_POSITIONS, decoder.device)
            first = decoder.runner.initial_state()
            self._rows = first.rows.repeat(STREAMS[-1], 1)
            self._frames = first.frames.repeat(STREAMS[-1])

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Return frames and streams of what is recorded."""
        return sorted(self._recorded)

    @torch.inference_mode()
    def record(self, capture: Capture) -> None:
        """Record every shape, the largest first; those that find no memory are left out."""
        started_at = time.perf_counter()
        wanted = [(n, b) for n in self._sizes for b in STREAMS if n * b <= MOST_FRAMES]
        for frames, streams in sorted(wanted, key=lambda shape: -shape[0] * shape[1]):
            try:
                self._recorded[frames, streams] = self._record(frames, streams, capture)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                logger.warning(
                    "no memory for a graph of %d streams by %d frames; they are decoded "
                    "without graphs",
                    streams,
                    frames,
                )
                free_cached_memory(self.decoder.device)
        self.seconds = time.perf_counter() - started_at

    def most_streams(self, frames: int) -> int:
        """Return how many streams one replay takes in chunks of so many frames; 0 for none."""
        pieces = set(self._pieces(frames))
        return min((max(b for n, b in self._recorded if n == size) for size in pieces), default=0)

    def run(
        self, codes: Sequence[Tensor], states: Sequence[StreamState]
    ) -> tuple[Tensor, list[StreamState]] | None:
        """Decode a chunk of each of several streams.

        Args:
            codes: integers [K, n] each, at most `most_streams(n)`, on any device.
            states: of as many streams, one each; left as they are.

        Returns:
            Samples float32 [B, N] and the states after them, in memory of their own; None where
            nothing is recorded that does it.
        """
        count, length = len(codes), codes[0].shape[1]
        pieces, stop = self._pieces(length), max(state.counts[0] for state in states) + length
        if not pieces or stop > MAX_KEPT_POSITIONS or count > self.most_streams(length):
            return None
        self._put(states)
        waves, start = [], 0
        for size in pieces:
            recorded = self._find(size, count)
            for row, matrix in zip(recorded.codes, codes, strict=False):
                row.copy_(matrix[:, start : start + size], non_blocking=True)
            recorded.replay()
            waves.append(recorded.wave[:count].clone())
            start += size
        after = StreamState(
            self._rows[:count].clone(),
            self._frames[:count].clone(),
            tuple(state.counts[0] + length for state in states),
        )
        return torch.cat(waves, dim=1) if len(waves) > 1 else waves[0], after.split()

    def _record(self, frames: int, streams: int, capture: Capture) -> _Recorded:
        # Everything that the work touches is bound here: a replay would not see it exchanged.
        config, runner, table = self.decoder.config, self.decoder.runner, self._rope
        rows, counts = self._rows[:streams], self._frames[:streams]
        codes = torch.zeros(
            streams, config.num_codebooks, frames, dtype=torch.int64, device=rows.device
        )
        wave = torch.empty(streams, config.hop_length * frames, device=rows.device)

        def work() -> None:
            wave.copy_(runner.advance(codes, rows, counts, rope_at(table, counts, frames)))

        counts.zero_()
        return _Recorded(codes, wave, capture(work))

    def _put(self, states: Sequence[StreamState]) -> None:
        """Copy the states into the recordings' own; rows without a stream start anew."""
        for row, state in enumerate(states):
            self._rows[row].copy_(state.rows[0])
            self._frames[row].copy_(state.frames[0])
        self._frames[len(states) :].zero_()

    def _find(self, frames: int, count: int) -> _Recorded:
        """Return the smallest recording of so many frames that takes `count` streams."""
        streams = min(b for n, b in self._recorded if n == frames and b >= count)
        return self._recorded[frames, streams]

    def _pieces(self, frames: int) -> list[int]:
        """Return the recorded sizes that `frames` is cut into, largest first; none if too many."""
        recorded = sorted({size for size, _ in self._recorded}, reverse=True)
        pieces: list[int] = []
        for size in recorded:
            count, frames = divmod(frames, size)
            pieces += [size] * count
        return [] if frames or len(pieces) > MOST_PIECES else pieces
