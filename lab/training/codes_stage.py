"""Fit latents and codebooks, and turn every clip into the codes that all else is taught with.

Aligned clips get the codes that their latents define. Plain ones get what the encoder hears in
them once it is trained, so that decoder and language model learn to live with its mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lab.training.codebooks import Book, LatentSpace, encode_latents, fit_books, fit_latent_space
from lab.training.shards import (
    ALIGNED,
    PLAIN,
    Clip,
    RunFolder,
    RunFolderError,
    read_shard,
    shard_paths,
)
from lab.training.synthesis import upsample
from synth.engine.codec.halves import CodecEncoder

_FIT_SHARDS = 3
_MAX_FIT_FRAMES = 200_000


@dataclass(frozen=True, slots=True, eq=False)
class CodedClips:
    """Hold many clips' texts and codes in flat tensors.

    `codes` uint8 [K, F]; clip i has the frames `offsets[i]` to `offsets[i + 1]`. `letters` float16
    [F] is the letter spoken at each frame, -1 where the clip is not aligned.
    """

    texts: list[str]
    voices: Tensor
    aligned: Tensor
    codes: Tensor
    letters: Tensor
    offsets: Tensor

    def codes_of(self, index: int) -> Tensor:
        """Return a clip's codes, int64 [K, T]."""
        first, last = int(self.offsets[index]), int(self.offsets[index + 1])
        return self.codes[:, first:last].long()

    def letters_of(self, index: int) -> Tensor:
        """Return the letter spoken at each of a clip's frames, float32 [T]."""
        first, last = int(self.offsets[index]), int(self.offsets[index + 1])
        return self.letters[first:last].float()


def fit_quantizer(
    run: RunFolder, *, num_books: int, size: int, report: Callable[[str], None]
) -> None:
    """Fit the latent space and the codebooks to the first shards; save them as `quantizer`."""
    paths = shard_paths(run.speech, ALIGNED)[:_FIT_SHARDS]
    if not paths:
        raise RunFolderError(f"{run.speech} holds no speech: run train-demo --stage data first.")
    clips = [clip for path in paths for clip in read_shard(path)]
    space = fit_latent_space(clips, size)
    latents = torch.cat([space.latents(clip) for clip in clips])[:_MAX_FIT_FRAMES]
    states = torch.cat([space.codes_of(clip.states) for clip in clips])[:_MAX_FIT_FRAMES]
    report(f"quantizer: {len(space.states)} states of {len(set(_phones(space)))} phones")
    books = fit_books(space, latents, states, num_books=num_books, size=size, report=report)
    run.save("quantizer", {"space": _fields(space), "books": [_fields(book) for book in books]})


def load_quantizer(run: RunFolder) -> tuple[LatentSpace, list[Book]]:
    """Return what `fit_quantizer` saved."""
    saved = run.load("quantizer")
    return LatentSpace(**saved["space"]), [Book(**book) for book in saved["books"]]


def write_codes(
    run: RunFolder, encoder: CodecEncoder | None, report: Callable[[str], None]
) -> None:
    """Encode every shard, plain ones first; save `codes` with the texts.

    `encoder` hears the plain clips; None gives them the codes that their latents define.
    """
    space, books = load_quantizer(run)
    texts: list[str] = []
    voices: list[int] = []
    aligned: list[bool] = []
    codes: list[Tensor] = []
    letters: list[Tensor] = []
    for clip in _every_clip(run.speech):
        texts.append(clip.text)
        voices.append(clip.voice)
        aligned.append(len(clip.letters) > 0)
        if encoder is None or aligned[-1]:
            clip_codes = encode_latents(books, space.latents(clip), space.codes_of(clip.states))
        else:
            clip_codes = heard_codes(encoder, clip)
        codes.append(clip_codes.to(torch.uint8))
        missing = torch.full((clip.num_frames,), -1.0, dtype=torch.float16)
        letters.append(torch.from_numpy(clip.letters).half() if aligned[-1] else missing)
    lengths = torch.tensor([part.shape[1] for part in codes])
    report(f"codes: {len(texts)} clips, {int(lengths.sum())} frames")
    run.save(
        "codes",
        {
            "texts": texts,
            "voices": torch.tensor(voices),
            "aligned": torch.tensor(aligned),
            "codes": torch.cat(codes, 1),
            "letters": torch.cat(letters),
            "offsets": torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]),
        },
    )


def heard_codes(encoder: CodecEncoder, clip: Clip) -> Tensor:
    """Return the codes that an encoder hears in a plain clip, int64 [K, T]."""
    wave = torch.from_numpy(clip.wave.astype("float32") / 32768.0)[None]
    heard = encoder.encode(upsample(wave.to(encoder.device))[0])
    return heard[:, : clip.num_frames].cpu()


def load_codes(run: RunFolder) -> CodedClips:
    """Return what `write_codes` saved."""
    return CodedClips(**run.load("codes"))


def _every_clip(speech: Path) -> Iterator[Clip]:
    for kind in (PLAIN, ALIGNED):
        for path in shard_paths(speech, kind):
            yield from read_shard(path)


def first_clips(run: RunFolder, aligned_shards: int) -> list[Clip]:
    """Return all plain clips and those of the first aligned shards, in the order of `codes`."""
    plain = len(shard_paths(run.speech, PLAIN))
    paths = [*shard_paths(run.speech, PLAIN), *shard_paths(run.speech, ALIGNED)]
    return [clip for path in paths[: plain + aligned_shards] for clip in read_shard(path)]


def _phones(space: LatentSpace) -> list[str]:
    return [state.rpartition(" ")[0] for state in space.states]


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}
