"""Fit the latent space and the codebooks to speech, and keep them for all other stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

from lab.training.codebooks import Book, add_books, fit_books
from lab.training.flite import TEACHERS, Utterance
from lab.training.latents import LatentSpace, fit_latent_space
from lab.training.run_folder import RunFolder, RunFolderError
from lab.training.shards import read_shard, shard_paths
from lab.training.sound.clips import aligned_clip
from lab.training.speakers import trained_speaker

_MOST_CLIPS = 1200
_SPEAKERS = 100  # of each teacher


class Quantizer(NamedTuple):
    """Hold the latent space and the codebooks."""

    space: LatentSpace
    books: list[Book]


def read_speech(run: RunFolder, most_shards: int | None = None, *, waves: bool) -> list[Utterance]:
    """Return what the first shards hold, all without a number.

    Raises:
        RunFolderError: there is none.
    """
    paths = shard_paths(run.speech)[:most_shards]
    if not paths:
        raise RunFolderError(f"{run.speech} holds no speech: run train-demo --stage data first.")
    return [each for path in paths for each in read_shard(path, waves=waves)]


def fit_quantizer(
    run: RunFolder,
    *,
    shards: int,
    num_books: int,
    size: int,
    known: Quantizer | None,
    report: Callable[[str], None],
) -> None:
    """Fit the latent space and the codebooks to the first shards; save them as `quantizer`.

    Of a `known` quantizer everything stays, and books are added until it has `num_books`.
    """
    speech = read_speech(run, shards, waves=False)[:_MOST_CLIPS]
    clips, speakers = [], []
    for index, utterance in enumerate(speech):
        number = 7 * index % _SPEAKERS
        clips.append(aligned_clip(utterance, trained_speaker(utterance.teacher, number)))
        speakers.append(number * len(TEACHERS) + TEACHERS.index(utterance.teacher))
    if known is not None:
        added = add_books(known.space, clips, known.books, num_books=num_books, report=report)
        save_quantizer(run, Quantizer(known.space, added))
        return
    space = fit_latent_space(clips, speakers, size)
    phones = {state.rpartition(" ")[0] for state in space.states}
    report(f"quantizer: {len(space.states)} states of {len(phones)} phones")
    books = fit_books(space, clips, num_books=num_books, size=size, report=report)
    save_quantizer(run, Quantizer(space, books))


def save_quantizer(run: RunFolder, quantizer: Quantizer) -> None:
    """Save a quantizer as the run's."""
    space, books = quantizer
    run.save("quantizer", {"space": _fields(space), "books": [_fields(book) for book in books]})


def load_quantizer(run: RunFolder) -> Quantizer:
    """Return what `save_quantizer` saved; raise RunFolderError where nothing was."""
    saved = run.load("quantizer")
    return Quantizer(LatentSpace(**saved["space"]), [Book(**book) for book in saved["books"]])


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}
