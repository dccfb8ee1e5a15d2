"""Decode codes while they are still being made: chunk by chunk, with the audio of the whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from synth.engine.codec.decoder import CodecDecoder, frame_limit
from synth.engine.codec.streams.graphs import StreamGraphs
from synth.engine.codec.streams.layers import MAX_PIECE_FRAMES
from synth.engine.codec.streams.state import StreamState, join


class CodecStream:
    """Decode one stream of codes; its chunks' audio together is that of `CodecDecoder.decode`.

    It holds the stream's state (8.8 MB at full size in float32) and no weights. One thread at a
    time may use it.
    """

    def __init__(self, decoder: CodecDecoder) -> None:
        self.decoder = decoder
        with torch.inference_mode():
            self._state = decoder.runner.initial_state()

    @property
    def num_frames(self) -> int:
        """Return the frames decoded so far."""
        return self._state.counts[0]

    def mark(self) -> StreamState:
        """Return where the stream is, for `rewind`; it stays as it is while the stream goes on."""
        return self._state

    def rewind(self, mark: StreamState) -> None:
        """Go back to where the stream was at a mark of its own."""
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
) -> list[Tensor]:
    """Decode the next chunk of several streams; chunks of equal length share one pass.

    When it raises, no stream has moved and the call can be made again.

    Args:
        streams: streams of one decoder, none of them twice, each as far along as it is.
        codes: for each its next codes, integers [K, n] on any device; n may be any number, also 0.
        max_batch_frames: as for `CodecDecoder.decode`.
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
    _check_streams(streams, codes)
    decoder = streams[0].decoder
    limit = frame_limit(max_batch_frames, decoder.device.type)
    decoder.check_codes(codes)
    empty = torch.empty(0, dtype=torch.float32, device=decoder.device)
    audio, states = [empty] * len(streams), [stream._state for stream in streams]
    for group in _equal_lengths([matrix.shape[1] for matrix in codes], limit, graphs):
        chunks, before = [codes[index] for index in group], [states[index] for index in group]
        done = graphs.run(chunks, before) if graphs else None
        wave, after = done or _run(decoder, chunks, before, limit)
        for index, samples, state in zip(group, wave, after, strict=True):
            audio[index], states[index] = samples, state
    _advance(streams, states)
    return audio


def _run(
    decoder: CodecDecoder, chunks: Sequence[Tensor], states: Sequence[StreamState], limit: int
) -> tuple[Tensor, list[StreamState]]:
    """Return the samples [B, N] of equally long chunks, and the states after them."""
    batch = torch.stack([chunk.to(decoder.device, torch.int64) for chunk in chunks])
    piece = min(MAX_PIECE_FRAMES, max(1, limit // len(chunks)))
    wave, after = decoder.runner.run(batch, join(states), piece)
    return wave.float(), after.split()


def _check_streams(streams: Sequence[CodecStream], codes: Sequence[Tensor]) -> None:
    if len(streams) != len(codes):
        raise ValueError(f"{len(streams)} streams were given {len(codes)} chunks")
    if len({id(stream) for stream in streams}) < len(streams):
        raise ValueError("a stream was given twice: its chunks must follow one another")
    if any(stream.decoder is not streams[0].decoder for stream in streams):
        raise ValueError("the streams are of different decoders")


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


def _advance(streams: Sequence[CodecStream], states: Sequence[StreamState]) -> None:
    for stream, state in zip(streams, states, strict=True):
        stream._state = state
