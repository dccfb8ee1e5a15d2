"""Check the codec in chunks of many sizes against golden vectors.

Each audio is compared with its vector and with what one pass over the whole gives, the codes of
each clip with theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle

import torch
from torch import Tensor

from lab.golden.case import CaseResult, Check, GoldenFolder, compare_close, compare_equal, read_wav
from lab.golden.codec_checks import (
    DECODE,
    ENCODE,
    END_TO_END,
    LONG,
    TOLERANCE,
    audio_excerpt,
    cases_of,
    golden_decoder,
    golden_encoder,
)
from lab.golden.codec_variants import FILE as CHECKPOINT
from lab.golden.codec_variants import checkpoint_codec_variants, decode_whole
from synth.engine.codec.halves import CodecDecoder
from synth.engine.codec.streams import ChunkSchedule, CodecStream, decode_streams

_CHUNKS = ((1,), (3,), (7,), (64,), (200,), (1, 130, 2, 40, 7))  # each over and over
_PIECES = (1, 64)  # frames of a clip that are encoded at once


def check_encode(folder: GoldenFolder) -> Iterator[CaseResult]:
    """Yield each clip's codes where it is encoded in pieces."""
    encoder, vectors = golden_encoder(folder), folder.tensors(ENCODE)
    for wave in cases_of(vectors):
        samples = read_wav(folder.vectors / "wav" / f"{wave}.wav")[0][0].to(encoder.device)
        for piece in _PIECES:
            codes = encoder.encode(samples, piece_frames=piece)
            name = f"{wave}.codes in pieces of {piece}"
            yield compare_equal(ENCODE, name, codes, vectors[f"{wave}.codes"])


def check_decode(folder: GoldenFolder, *, compiled: bool = False) -> Iterator[CaseResult]:
    """Yield each code matrix's audio in chunks, then that of all matrices in one batch."""
    decoder, vectors = golden_decoder(folder, compiled=compiled), folder.tensors(DECODE)
    cases = cases_of(vectors)
    for case in cases:
        whole = {f"{case}.audio": (slice(None), vectors[f"{case}.audio"])}
        yield from _check_chunks(DECODE, case, decoder, vectors[f"{case}.codes"], whole)
    together = _decode_together(decoder, [vectors[f"{case}.codes"] for case in cases])
    for case, found in zip(cases, together, strict=True):
        expected = vectors[f"{case}.audio"]
        yield compare_close(DECODE, f"{case}.audio together", found, expected, TOLERANCE)


def check_long(folder: GoldenFolder, *, compiled: bool = False) -> Iterator[CaseResult]:
    """Yield the excerpts of audio of one input longer than the window, in chunks."""
    decoder, vectors = golden_decoder(folder, compiled=compiled), folder.tensors(LONG)
    excerpts = {name: audio_excerpt(name, decoder.config.hop_length) for name in vectors}
    parts = {name: (part, vectors[name]) for name, part in excerpts.items() if part}
    yield from _check_chunks(LONG, "audio", decoder, vectors["codes"], parts)


def check_end_to_end(folder: GoldenFolder, *, compiled: bool = False) -> Iterator[CaseResult]:
    """Yield the audio of the codes that the language model gave, in chunks."""
    decoder, vectors = golden_decoder(folder, compiled=compiled), folder.tensors(END_TO_END)
    whole = {"audio": (slice(None), vectors["audio"])}
    yield from _check_chunks(END_TO_END, "audio", decoder, vectors["codes"], whole)


def check_variants(folder: GoldenFolder) -> Iterator[CaseResult]:
    """Yield each variant of the codec file: refused, or the plain file's audio in chunks of one."""

    def decode(decoder: CodecDecoder, codes: Tensor) -> Tensor:
        return _decode_in(decoder, codes, [1] * codes.shape[1])

    yield from checkpoint_codec_variants(folder, folder.json(CHECKPOINT)["codec"], decode)


CHECKS: dict[str, Check] = {
    ENCODE: check_encode,
    DECODE: check_decode,
    LONG: check_long,
    END_TO_END: check_end_to_end,
    CHECKPOINT: check_variants,
}
COMPANIONS: dict[str, str] = {}


def _check_chunks(
    file: str,
    case: str,
    decoder: CodecDecoder,
    codes: Tensor,
    parts: dict[str, tuple[slice, Tensor]],
) -> Iterator[CaseResult]:
    """Yield, for each way to cut the codes, the parts of its audio and the audio of one pass."""
    whole = decode_whole(decoder, codes)
    for label, sizes in _ways_to_cut(codes.shape[1]).items():
        audio = _decode_in(decoder, codes, sizes)
        for name, (part, expected) in parts.items():
            yield compare_close(file, f"{name} {label}", audio[part], expected, TOLERANCE)
        yield compare_close(file, f"{case} {label}, whole", audio, whole, TOLERANCE)


def _ways_to_cut(num_frames: int) -> dict[str, list[int]]:
    """Return the chunks' sizes by a label that names them, each way once."""
    ways = {f"by {'-'.join(map(str, sizes))}": _cut(num_frames, sizes) for sizes in _CHUNKS}
    ways["growing"] = list(ChunkSchedule().split(num_frames))
    distinct: dict[tuple[int, ...], str] = {}
    for label, cut in ways.items():
        distinct.setdefault(tuple(cut), label)
    return {label: list(cut) for cut, label in distinct.items()}


def _cut(num_frames: int, sizes: Sequence[int]) -> list[int]:
    """Return `sizes`, repeated, as far as they fit, and what is left over."""
    cut: list[int] = []
    for size in cycle(sizes):
        left = num_frames - sum(cut)
        if left <= 0:
            return cut
        cut.append(min(size, left))
    raise AssertionError("no sizes to cut by")


def _decode_in(decoder: CodecDecoder, codes: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the audio of codes [K, T] through one stream in chunks of these sizes."""
    stream = CodecStream(decoder)
    chunks = torch.split(codes, list(sizes), dim=1)
    return torch.cat([stream.decode(chunk) for chunk in chunks])


def _decode_together(decoder: CodecDecoder, codes: Sequence[Tensor]) -> list[Tensor]:
    """Return the audio of all matrices, each a stream; every call decodes a chunk of each."""
    streams = [CodecStream(decoder) for _ in codes]
    audio: list[list[Tensor]] = [[] for _ in codes]
    start, longest = 0, max(matrix.shape[1] for matrix in codes)
    for size in ChunkSchedule().split(longest):
        chunks = [matrix[:, start : start + size] for matrix in codes]
        for parts, samples in zip(audio, decode_streams(streams, chunks), strict=True):
            parts.append(samples)
        start += size
    return [torch.cat(parts) for parts in audio]
