"""Decode codes while they are still being made: chunk by chunk, eagerly or by recorded graphs."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile

import torch
from torch import Tensor

from synth.engine.codec.config import HEAD_DIM, CodecConfig
from synth.engine.codec.halves import CodecDecoder, frame_limit
from synth.engine.codec.layers import (
    MAX_KEPT_POSITIONS,
    MAX_PIECE_FRAMES,
    ROPE_ROWS,
    StreamState,
    join,
    rope_at,
)
from synth.engine.device import free_cached_memory, is_out_of_memory
from synth.engine.errors import InvalidSpecError

WARM_UP_RUNS = 2  # compile kernels, take the libraries' workspaces

Work = Callable[[], None]
# What turns work into its replay. The work reads and writes tensors that stay where they are as
# long as the replay is used, and neither waits for the device nor looks at its numbers; doing it
# may be part of recording it. Replays follow one another on one stream.
Capture = Callable[[Work], Work]
logger = logging.getLogger(__name__)
STREAMS = (1, 2, 4, 8)
# Of all streams of a chunk together: more frames take the device longer than launching them.
MOST_FRAMES = 64
MOST_PIECES = 6  # that a chunk of another length is cut into before it is decoded eagerly
MAX_FIRST = 4  # frames, 0.19 s: the first sound waits for all of them
MAX_LARGEST = 256  # frames, 12 s; larger ones gain nothing and wait long


class CudaCapture:
    """Record CUDA graphs on the stream that is current, whose priority their kernels get.

    All share one pool of memory: nothing in it outlives a replay but what the work was given.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        """Record the work on a stream other than the device's first; its own error goes on."""
        stream = torch.cuda.current_stream(self._device)
        for _ in range(WARM_UP_RUNS):
            work()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Not through torch.cuda.graph, which collects garbage each time: there are many graphs.
        # Other threads may go on meanwhile.
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            work()
        except Exception:
            self._pool = torch.cuda.graph_pool_handle()  # the other is not to be trusted
            with suppress(RuntimeError):  # says only that there was an error
                graph.capture_end()
            raise
        graph.capture_end()
        return graph.replay


def graph_bytes(config: CodecConfig, dtype: torch.dtype, frame_bytes: int) -> int:
    """Return what the recordings of a decoder of these sizes take at most.

    Args:
        frame_bytes: the working memory of one frame; the recordings share that of the largest.
    """
    with torch.device("meta"):
        numbers = CodecDecoder(config).layout.size
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
            first = decoder.initial_state()
            self._rows = first.rows.repeat(STREAMS[-1], 1)
            self._frames = first.frames.repeat(STREAMS[-1])

    @property
    def shapes(self) -> list[tuple[int, int]]:
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
        for row, state in enumerate(states):
            self._rows[row].copy_(state.rows[0])
            self._frames[row].copy_(state.frames[0])
        self._frames[count:].zero_()  # rows without a stream start anew
        waves, start = [], 0
        for size in pieces:
            streams = min(b for n, b in self._recorded if n == size and b >= count)
            recorded = self._recorded[size, streams]
            for target, matrix in zip(recorded.codes, codes, strict=False):
                target.copy_(matrix[:, start : start + size], non_blocking=True)
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
        decoder, config, table = self.decoder, self.decoder.config, self._rope
        rows, counts = self._rows[:streams], self._frames[:streams]
        codes = torch.zeros(
            streams, config.num_codebooks, frames, dtype=torch.int64, device=rows.device
        )
        wave = torch.empty(streams, config.hop_length * frames, device=rows.device)

        def work() -> None:
            wave.copy_(decoder.advance(codes, rows, counts, rope_at(table, counts, frames)))

        counts.zero_()
        return _Recorded(codes, wave, capture(work))

    def _pieces(self, frames: int) -> list[int]:
        """Return the recorded sizes that `frames` is cut into, largest first; none if too many."""
        recorded = sorted({size for size, _ in self._recorded}, reverse=True)
        pieces: list[int] = []
        for size in recorded:
            count, frames = divmod(frames, size)
            pieces += [size] * count
        return [] if frames or len(pieces) > MOST_PIECES else pieces


@dataclass(frozen=True, slots=True)
class ChunkSchedule:
    """Hold the first chunk's frames and the largest's; each chunk is twice the one before.

    Raises:
        InvalidSpecError: `first` is not 1 to 4, or `largest` is below `first` or above 256.
    """

    first: int = 4
    largest: int = 32

    def __post_init__(self) -> None:
        if not 1 <= self.first <= MAX_FIRST:
            raise InvalidSpecError(
                f"The first chunk must have 1 to {MAX_FIRST} frames, not {self.first}."
            )
        if not self.first <= self.largest <= MAX_LARGEST:
            raise InvalidSpecError(
                f"The largest chunk must have {self.first} (as many as the first chunk) to "
                f"{MAX_LARGEST} frames, not {self.largest}."
            )

    def sizes(self) -> Iterator[int]:
        """Yield the frames of one chunk after the other, without end."""
        size = self.first
        while True:
            yield size
            size = min(2 * size, self.largest)

    def distinct_sizes(self) -> tuple[int, ...]:
        """Return every size that a chunk can have, but for the last of a stream."""
        return (*takewhile(lambda size: size < self.largest, self.sizes()), self.largest)

    def split(self, num_frames: int) -> Iterator[int]:
        """Yield the frames of the chunks that `num_frames` frames are cut into; the last may be
        shorter."""
        for size in self.sizes():
            if num_frames <= 0:
                return
            yield min(size, num_frames)
            num_frames -= size


class CodecStream:
    """Decode one stream of codes; its chunks' audio together is that of `CodecDecoder.decode`.

    It holds the stream's state (8.8 MB at full size in float32) and no weights. One thread at a
    time may use it.
    """

    def __init__(self, decoder: CodecDecoder) -> None:
        self.decoder = decoder
        with torch.inference_mode():
            self._state = decoder.initial_state()

    @property
    def num_frames(self) -> int:
        return self._state.counts[0]

    def mark(self) -> StreamState:
        """Return where the stream is, for `rewind`; it stays as it is while the stream goes on."""
        return self._state

    def rewind(self, mark: StreamState) -> None:
        self._state = mark

    def decode(self, codes: Tensor) -> Tensor:
        """Return the samples of the next frames; arguments and errors as for `decode_streams`."""
        return decode_streams([self], [codes])[0]


@torch.inference_mode()
def decode_streams(
    streams: Sequence[CodecStream],
    codes: Sequence[Tensor],
    *,
    max_batch_frames: int | None = None,
    graphs: StreamGraphs | None = None,
    may_wait: bool = True,
) -> list[Tensor]:
    """Decode the next chunk of several streams; chunks of equal length share one pass.

    When it raises, no stream has moved and the call can be made again.

    Args:
        streams: streams of one decoder, none of them twice, each as far along as it is.
        codes: for each its next codes, integers [K, n] on any device; n may be any number, also 0.
        max_batch_frames, may_wait: as for `CodecDecoder.decode`.
        graphs: recordings of this decoder's chunks, taken where they fit.

    Returns:
        For each stream float32 [hop_length * n] on the model's device.

    Raises:
        InvalidSpecError: codes are not of the decoder's form, as for `CodecDecoder.decode`.
        ValueError: the streams are not distinct streams of one decoder, one for each chunk, or
            `max_batch_frames` is below 1.
    """
    if not streams and not codes:
        return []
    if len(streams) != len(codes):
        raise ValueError(f"{len(streams)} streams were given {len(codes)} chunks")
    if len({id(stream) for stream in streams}) < len(streams):
        raise ValueError("a stream was given twice: its chunks must follow one another")
    if any(stream.decoder is not streams[0].decoder for stream in streams):
        raise ValueError("the streams are of different decoders")
    decoder = streams[0].decoder
    limit = frame_limit(max_batch_frames, decoder.device.type)
    decoder.check_codes(codes, may_wait=may_wait)
    empty = torch.empty(0, dtype=torch.float32, device=decoder.device)
    audio, states = [empty] * len(streams), [stream._state for stream in streams]
    for group in _equal_lengths([matrix.shape[1] for matrix in codes], limit, graphs):
        chunks, before = [codes[index] for index in group], [states[index] for index in group]
        done = graphs.run(chunks, before) if graphs else None
        if done is None:
            batch = torch.stack([chunk.to(decoder.device, torch.int64) for chunk in chunks])
            piece = min(MAX_PIECE_FRAMES, max(1, limit // len(chunks)))
            samples, together = decoder.run(batch, join(before), piece)
            done = samples.float(), together.split()
        wave, after = done
        for index, samples, state in zip(group, wave, after, strict=True):
            audio[index], states[index] = samples, state
    for stream, state in zip(streams, states, strict=True):
        stream._state = state
    return audio


def _equal_lengths(
    lengths: Sequence[int], limit: int, graphs: StreamGraphs | None
) -> Iterator[list[int]]:
    """Yield groups of indices of equal length, at most `limit` streams each; none of length 0.

    Where a recording takes fewer streams, it says how many: two replays are faster than one pass.

    Nothing is padded: zeros after a chunk's end would stay behind in its stream's state.
    """
    by_length: defaultdict[int, list[int]] = defaultdict(list)
    for index, length in enumerate(lengths):
        by_length[length].append(index)
    for length, group in by_length.items():
        if length:
            most = min(limit, graphs.most_streams(length) or limit) if graphs else limit
            for start in range(0, len(group), most):
                yield group[start : start + most]
