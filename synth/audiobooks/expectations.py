"""Estimate how long a book's audio will be, when it will be done, and what was spoken before."""

from __future__ import annotations

import datetime as dt
import itertools
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from django.core.files.storage import default_storage
from django.db.models import Q
from django.db.models.functions import Length

from synth.audiobooks.casting import CastChapter, Stage
from synth.audiobooks.plans import SpokenChapter, script_of
from synth.audiobooks.start import order_of
from synth.books.plan import Plan
from synth.books.rules import Casting
from synth.contract import (
    EngineClass,
    Reference,
    RenderSpec,
    Sampling,
    Turn,
    VoicesKey,
    content_key,
    frame_cap,
    key_of_voices,
)
from synth.jobs.eta import eta_of_new, eta_seconds
from synth.jobs.planning import Planner, links_of
from synth.jobs.queue import lane_of
from synth.jobs.submit import segment_seed
from synth.models import PRIORITIES, BookSource, JobVoice, RenderJob, Segment, Take, WorkerStatus
from synth.transitions.jobs import UNFINISHED
from ttsweb import leases
from ttsweb.refusals import SubmitRejectedError
from voices.models import ClipCodes, VoiceVersion

NO_CODES = np.empty((0, 0), np.int16)
MOST_CHARS = 400_000  # that are cut to see it, about a novel; of a longer book some chapters are
_KEYS_AT_ONCE = 5000


class Reuse(NamedTuple):
    """Hold how many segments a book would have, and how many of them have takes already.

    `share` of its characters is in those. Of a book above MOST_CHARS all three are estimates.
    """

    segments: int
    reused: int
    share: float


def expected_reuse(book: BookSource, plan: Plan) -> Reuse | None:
    """Return what of a book that was not started has takes; None where that cannot be told.

    It cannot while its voices are missing or not encoded, or no worker has said which
    engine it has. Where workers of several classes are there, what any of them spoke counts.
    """
    engines = _engines()
    script = script_of(plan, Casting.of(book.casting))
    if not engines or not script.chapters:
        return None
    chapters = _some_of(script.chapters)
    order, planner = order_of(book), Planner(book.owner)
    try:
        stage = Stage(script, order, planner)
        cast = [stage.cast(chapter) for chapter in chapters]
        job = planner.row(order, "", stage.language, 0, is_book=True)
    except SubmitRejectedError:
        return None  # told when it is started
    voices: dict[int, VoicesKey] = {}
    for speaker, version in stage.versions.items():
        found = _voices_key(version)
        if found is None:
            return None
        voices[speaker] = found
    pieces = list(_keys(job, cast, voices, engines))
    known: set[str] = set()
    # Where nothing was ever spoken by these versions there is nothing to look for.
    if JobVoice.objects.filter(version__in=list(stage.versions.values())).exists():
        known = _known(itertools.chain.from_iterable(keys for keys, _ in pieces))
    chars = sum(count for _, count in pieces)
    spoken_before = [count for keys, count in pieces if not known.isdisjoint(keys)]
    scale = _chars_of(script.chapters) / max(1, _chars_of(chapters))
    return Reuse(
        round(len(pieces) * scale),
        round(len(spoken_before) * scale),
        sum(spoken_before) / chars if chars else 0.0,
    )


def _engines() -> list[EngineClass]:
    """Return the classes of the engines that are ready, or else that of the last one seen."""
    said = WorkerStatus.objects.exclude(engine_class={}).order_by("-last_seen_at")
    ready = said.filter(state__in=WorkerStatus.SERVING).values_list("engine_class", flat=True)
    stored = list(ready) or list(said.values_list("engine_class", flat=True)[:1])
    return list({found for one in stored if (found := EngineClass.of(one)) is not None})


def _some_of(chapters: Sequence[SpokenChapter]) -> list[SpokenChapter]:
    """Return as many chapters, from all over a book, as have about MOST_CHARS together."""
    stride = max(1, -(-_chars_of(chapters) // MOST_CHARS))
    return list(chapters[stride // 2 :: stride]) or list(chapters[:1])


def _chars_of(chapters: Sequence[SpokenChapter]) -> int:
    return sum(len(passage.text) for chapter in chapters for passage in chapter.passages)


def _keys(
    job: RenderJob,
    cast: Sequence[CastChapter],
    voices: dict[int, VoicesKey],
    engines: Sequence[EngineClass],
) -> Iterator[tuple[list[str], int]]:
    """Yield of each piece its content keys, one for each class of engines, and its characters."""
    for chapter in cast:
        seeds = [segment_seed(job.seed, one.spoken_text, one.speaker) for one in chapter.pieces]
        links = links_of(chapter.speakers, seeds) if job.history else None
        made: dict[int, list[list[str]]] = {}  # of each chain that goes on, by its first segment
        for index, piece in enumerate(chapter.pieces):
            text = piece.spoken_text
            sampling = Sampling(
                seed=seeds[index],
                temperature=job.temperature,
                top_p=job.top_p,
                top_k=job.top_k,
                max_frames=frame_cap(text),
            )
            # As if each first take was kept.
            before = [] if links is None else made.setdefault(links[index].chain, [])
            keys = []
            for place, engine in enumerate(engines):
                said = [of_engines[place] for of_engines in before[-job.history :]]
                history = tuple(Turn("", NO_CODES, key) for key in said) if before else ()
                spec = RenderSpec(text, sampling=sampling, history=history)
                keys.append(content_key(spec, engine, voices[chapter.speakers[index]]))
            before.append(keys)
            yield keys, len(text)


def _known(keys: Iterable[str]) -> set[str]:
    found: set[str] = set()
    coming = iter(keys)
    while some := list(itertools.islice(coming, _KEYS_AT_ONCE)):
        rows = Take.objects.filter(content_key__in=some)
        found.update(rows.values_list("content_key", flat=True))
    return found


def _voices_key(version: VoiceVersion) -> VoicesKey | None:
    """Return a version's part of content keys; None where its codes are not there."""
    # Imported here: a worker of files, which never asks for this, does without it.
    from safetensors import SafetensorError
    from safetensors.numpy import load

    clips = list(version.clips.order_by("index"))
    rows = ClipCodes.objects.filter(
        clip__in=[clip.stored_id for clip in clips],
        codec_fingerprint=version.codec_fingerprint,
        encoded_at__isnull=False,
    )
    keys: dict[uuid.UUID, str] = dict(rows.values_list("clip", "key"))
    try:
        parts = []
        for clip in clips:
            with default_storage.open(keys[clip.stored_id]) as file:
                parts.append(load(file.read())["codes"])
    except (KeyError, OSError, ValueError, SafetensorError):
        return None
    if not parts:
        return None
    codes = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    return key_of_voices([Reference(" ".join(clip.transcript for clip in clips), codes)])


LATEST_JOBS, LATEST_SEGMENTS = 20, 400  # of a voice, which say how fast it reads
LEAST_SECONDS = 60.0  # of audio; less says little of a voice


@dataclass(frozen=True, slots=True)
class Expected:
    """Hold what is expected of a book; None where nothing was measured.

    `seconds` are those of the audio at `chars_per_second`, which is the voice's own rate if
    `is_measured`. `render_seconds` are from now to the end, the queue before it included; what
    was spoken before takes none. `reuse` is that, of a book that was not started.
    """

    seconds: float
    chars_per_second: float
    is_measured: bool
    render_seconds: int | None
    finish: dt.datetime | None
    reuse: Reuse | None = None


def reading_rate(version: VoiceVersion | None) -> float | None:
    """Return how many characters a voice reads in a second, blanks counted; None if unknown."""
    if version is None:
        return None
    pinned = JobVoice.objects.filter(version=version).order_by("-job__created_at")
    spoken = list(pinned.values_list("job_id", "speaker")[:LATEST_JOBS])
    if not spoken:
        return None
    by_it = Q()
    for job_id, speaker in spoken:
        by_it |= Q(job=job_id, speaker=speaker)
    rows = Segment.objects.filter(by_it, status=Segment.Status.DONE, take__isnull=False)
    rows = rows.order_by("-finished_at", "-pk").annotate(chars=Length("spoken_text"))
    measured = list(rows.values_list("chars", "take__audio_seconds")[:LATEST_SEGMENTS])
    seconds = sum(one for _, one in measured if one)
    if seconds < LEAST_SECONDS:
        return None
    return round(sum(chars for chars, one in measured if one) / seconds, 2)


def expect(book: BookSource, plan: Plan, *, is_measured: bool) -> Expected:
    """Return what is expected of a book by its plan, which has the rate of its voice."""
    reuse = expected_reuse(book, plan) if book.job_id is None else None
    left = _seconds_left(book, plan, reuse)
    finish = None if left is None else leases.database_now() + dt.timedelta(seconds=left)
    seconds, rate = round(plan.seconds, 1), plan.chars_per_second
    return Expected(seconds, rate, is_measured, left, finish, reuse)


def _seconds_left(book: BookSource, plan: Plan, reuse: Reuse | None) -> int | None:
    if book.job_id is not None:
        job = RenderJob.objects.defer("text").filter(pk=book.job_id).first()
        return eta_seconds(job) if job is not None and job.status in UNFINISHED else None
    priority = PRIORITIES[book.options.get("priority", "bulk")]
    lane = lane_of(book.owner_id, book.api_key)
    new = plan.characters * (1 - (reuse.share if reuse is not None else 0.0))
    return eta_of_new(new, priority=priority, lane=lane)
