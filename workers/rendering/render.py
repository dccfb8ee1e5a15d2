"""Render claimed segments: say what the engine is asked for, ask it, and have its answers settled.

Each result is named by what it depends on, and settled exactly once.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from synth.contract import (
    TOP_P,
    CodedError,
    EngineClass,
    Reference,
    RenderSpec,
    Sampling,
    Turn,
    VoicesKey,
    key_of_voices,
)
from synth.contract import content_key as content_key
from synth.contract import frame_cap as frame_cap
from synth.models import JobVoice, RenderJob, Segment
from synth.transitions.jobs import OPEN, Silence, silence_of
from synth.transitions.segment_edits import earlier_segments
from synth.transitions.takes import place_in_series
from ttsweb.work import Kind
from voices.models import ReferenceClip, VoiceVersion
from workers.process.held_claims import HeldClaim, RenderedQueue
from workers.rendering.codes import CodesLookup, read_take_codes
from workers.rendering.live_writer import Cutter, HeardSegment
from workers.site.protocol import Settled

if TYPE_CHECKING:
    from workers.process.worker_process import WorkerProcess


USUAL_RETAKES = 2  # with nothing but other seeds
STEPS = 6
TEMPERATURE_STEP, MOST_TEMPERATURE = 0.1, 1.4
TOP_P_STEP = 0.05


def sampling_of_retake(sampling: Sampling, place: int) -> Sampling:
    """Return how retake number `place` of a segment's series is sampled; 0 is its first take.

    From the third one on each samples more freely, up to the eighth: a model that ends early with
    `top_p` or more of its certainty would do so with every seed.
    """
    step = min(max(0, place - USUAL_RETAKES), STEPS)
    if not step:
        return sampling
    temperature = round(sampling.temperature + step * TEMPERATURE_STEP, 4)
    return replace(
        sampling,
        temperature=max(sampling.temperature, min(temperature, MOST_TEMPERATURE)),
        top_p=min(TOP_P.high, round(sampling.top_p + step * TOP_P_STEP, 4)),
    )


class CodesMissingError(Exception):
    """A clip of a pinned version has no codes: the version must be encoded again first."""

    def __init__(self, version_id: uuid.UUID) -> None:
        super().__init__(f"no codes for version {version_id}")
        self.version_id = version_id


class ReferenceRemovedError(CodedError):
    """A pinned version has no clips any more, so no encoding can bring its codes back."""

    code = "reference_removed"

    def __init__(self) -> None:
        super().__init__(
            "The reference clip was removed when its job ended; submit the text again with "
            "a voice or a clip."
        )


class VoiceSilencedError(Exception):
    """The voice may not speak any more since the segment was claimed; `code` says why."""

    def __init__(self, silence: Silence) -> None:
        super().__init__(f"{silence.message} This text was not rendered before that.")
        self.code = silence.code


class SpeakerUnknownError(CodedError):
    """A segment's speaker has no voice in its job; no other voice speaks for it."""

    code = "speaker_unknown"

    def __init__(self, speaker: int) -> None:
        super().__init__(
            f"Speaker {speaker} has no voice in this job; submit the job again with one."
        )


class EarlierOpenError(Exception):
    """An earlier segment of the chain was queued again since this one was claimed."""


@dataclass(frozen=True, slots=True, eq=False)
class RenderRequest:
    """Hold a segment's request and its take's content key (64 hex digits).

    `clips` are the fingerprints of the clips behind the spec's reference, whose codes may stay in
    memory if `may_keep`; `is_live` says that its job is listened to while it is rendered,
    `is_chained` that others may wait for it, `decoder` which weights its codes are made for.
    """

    spec: RenderSpec
    content_key: str
    clips: tuple[str, ...] = ()
    is_live: bool = False
    language: str = ""
    may_keep: bool = True
    is_chained: bool = False
    decoder: str = ""


class EngineNames(Protocol):
    """What of an engine is in the names of its takes."""

    @property
    def codec_fingerprint(self) -> str: ...

    @property
    def engine_class(self) -> EngineClass: ...


@dataclass(frozen=True, slots=True, eq=False)
class _Spoken:
    """Hold what all segments of a version share: reference, clips, their part of a content key."""

    reference: Reference
    clips: tuple[str, ...]
    key: VoicesKey
    may_keep: bool


_Voices = Mapping[tuple[uuid.UUID, int], _Spoken | Exception]  # by job and speaker


def build_requests(
    segment_ids: Collection[int], codes: CodesLookup, engine: EngineNames
) -> dict[int, RenderRequest | Exception]:
    """Return the requests of segments, by primary key, with a few queries for all of them.

    A segment whose row is gone is left out. Where a request cannot be built there is the reason:
    CancelledError when its job was cancelled, CodesMissingError when its speaker's version has to
    be encoded again, VoiceSilencedError when that voice may not speak any more,
    ReferenceRemovedError when its clips are gone, SpeakerUnknownError when its speaker has no
    voice, EarlierOpenError when it has to wait, OSError when the storage cannot be read at the
    moment.
    """
    found = list(Segment.objects.filter(pk__in=segment_ids).only(*_COLUMNS))
    spoken_by = {(segment.job_id, segment.speaker) for segment in found}
    # Voices first: where a job is deleted between the two, it is missed as a job.
    voices = _voices_of(spoken_by, codes, engine.codec_fingerprint)
    jobs = RenderJob.objects.defer("text").in_bulk({job_id for job_id, _ in spoken_by})
    chained = [one for one in found if one.chain is not None]
    earlier = earlier_segments(chained) if chained else {}
    requests: dict[int, RenderRequest | Exception] = {}
    for segment in found:
        job, voice = jobs.get(segment.job_id), voices.get((segment.job_id, segment.speaker))
        if job is None:
            continue  # deleted in this moment
        if job.cancel_requested:
            requests[segment.pk] = CancelledError()
        elif voice is None:
            requests[segment.pk] = SpeakerUnknownError(segment.speaker)
        elif isinstance(voice, Exception):
            requests[segment.pk] = voice
        else:
            try:
                earlier_ones = earlier.get(segment.pk, ())
                history = _history(job, segment, earlier_ones, engine.engine_class.decoder)
            except (EarlierOpenError, OSError) as error:
                requests[segment.pk] = error
            else:
                requests[segment.pk] = _request(job, voice, segment, history, engine.engine_class)
    return requests


_COLUMNS = ("job_id", "speaker", "spoken_text", "seed", "candidates", "chapter_id", "chain",
            "index", "history_used")  # fmt: skip


def _request(
    job: RenderJob,
    voice: _Spoken,
    segment: Segment,
    history: tuple[Turn, ...],
    engine: EngineClass,
) -> RenderRequest:
    text = segment.spoken_text
    asked = Sampling(
        seed=segment.seed,
        temperature=job.temperature,
        top_p=job.top_p,
        top_k=job.top_k,
        max_frames=frame_cap(text),
    )
    sampling = sampling_of_retake(asked, place_in_series(segment.seed, segment.candidates))
    spec = RenderSpec(text, voice.reference, sampling, history)
    return RenderRequest(
        spec,
        content_key(spec, engine, voice.key),
        voice.clips,
        is_live=job.live_requested_at is not None,
        language=job.language,
        may_keep=voice.may_keep,
        is_chained=segment.chain is not None,
        decoder=engine.decoder,
    )


MOST_HISTORY_FRAMES = 768  # 36 s: beside a voice and the longest segment it fits 4,096 positions


def _history(
    job: RenderJob, segment: Segment, earlier: Sequence[Segment], decoder: str
) -> tuple[Turn, ...]:
    """Return what was said just before a segment, as far as it was spoken without a gap.

    Args:
        earlier: those of its chain, the next before first.
        decoder: the engine's; what was spoken for another one is a gap.

    Raises:
        EarlierOpenError: one of them is still to be rendered.
        OSError: the storage cannot be read at the moment.
    """
    if any(one.status in OPEN for one in earlier):
        raise EarlierOpenError
    most = job.history if segment.history_used is None else segment.history_used
    turns: list[Turn] = []
    frames = 0
    for one in earlier[:most]:
        if one.take is None or (frames := frames + one.take.frames) > MOST_HISTORY_FRAMES:
            break
        codes = read_take_codes(one.take, decoder)
        if codes is None:
            break
        turns.append(Turn(one.spoken_text, codes, one.take.content_key))
    return tuple(reversed(turns))


def _voices_of(
    spoken_by: Collection[tuple[uuid.UUID, int]], codes: CodesLookup, codec: str
) -> _Voices:
    """Return what speakers of jobs speak with, or why they cannot; each version is read once.

    Args:
        spoken_by: job and speaker; the voices of a job's other speakers are not looked at.
    """
    pinned = JobVoice.objects.filter(
        job__in={job_id for job_id, _ in spoken_by}, speaker__in={number for _, number in spoken_by}
    )
    # Clips first: those of a voice that is deleted between the two are missed as its own then.
    clips: dict[uuid.UUID, list[ReferenceClip]] = defaultdict(list)
    found = ReferenceClip.objects.filter(version__in=pinned.values("version"))
    for clip in found.select_related("stored").order_by("version", "index"):
        clips[clip.version_id].append(clip)
    rows = [
        row
        for row in pinned.select_related("version__voice", "job__owner").defer("job__text")
        if (row.job_id, row.speaker) in spoken_by
    ]
    silenced = {row.pk: silence for row in rows if (silence := silence_of(row))}
    versions = {row.version_id: row.version for row in rows if row.pk not in silenced}
    spoken = {
        pk: _describe_voice(version, clips[pk], codes, codec) for pk, version in versions.items()
    }
    return {
        (row.job_id, row.speaker): VoiceSilencedError(silenced[row.pk])
        if row.pk in silenced
        else spoken[row.version_id]
        for row in rows
    }


def _describe_voice(
    version: VoiceVersion, clips: list[ReferenceClip], codes: CodesLookup, codec: str
) -> _Spoken | Exception:
    """Return a version as one reference: its clips' codes and transcripts, one after the other."""
    keep = version.voice is None or version.voice.cache_codes
    if not clips:
        return ReferenceRemovedError()
    try:
        found = [codes.find(clip.stored, codec, keep=keep) for clip in clips]
    except OSError as error:
        return error
    parts = [part for part in found if part is not None]
    if len(parts) < len(clips):
        return CodesMissingError(version.pk)
    text = " ".join(clip.transcript for clip in clips)
    reference = Reference(text, parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1))
    fingerprints = tuple(clip.stored.fingerprint for clip in clips)
    return _Spoken(reference, fingerprints, key_of_voices([reference]), keep)


def begin_segments(process: WorkerProcess, claims: Sequence[HeldClaim]) -> None:
    """Have the takes of claimed segments reused, and hand the other segments to the engine."""
    begun = process.site.begin_segments(claims, process.host.engine)
    if process.handing_back.is_set():
        return  # the shutdown gives the claims back
    for claim in claims:
        request = begun.requests.get(claim)
        if request is None:
            process.held.drop(claim)
        else:
            claim.request = request
            _submit(process, claim)
    reused = len(claims) - len(begun.requests)
    process.ahead.note_reused(reused, is_idle=not process.held.unrendered())
    if begun.awaited:
        process.note_awaited(begun.awaited)
    _note_settled(process, begun.settled)


def _submit(process: WorkerProcess, claim: HeldClaim) -> None:
    """Ask the engine; its answer is dealt with in our own threads, never in the engine's.

    Where somebody listens, the samples are written while they are made.
    """
    if claim.is_lost:
        process.held.drop(claim)
        return
    request, engine = claim.request, process.host.engine
    process.spoken.note(request.clips, request.spec.references)
    heard = None
    if request.is_live and claim.job_id is not None:
        claim.take_id = uuid.uuid4()
        names = {"job_id": claim.job_id, "segment_id": claim.pk, "attempt": claim.take_id}
        cutter = Cutter(**names, sample_rate=engine.sample_rate)
        heard = HeardSegment(process.live, cutter)
    on_audio = None if heard is None else heard.take
    future = claim.future = engine.submit(request.spec, priority=claim.priority, on_audio=on_audio)
    if heard is not None:
        future.add_done_callback(heard.end)
    if claim.is_lost or process.handing_back.is_set():
        claim.stop()
    future.add_done_callback(lambda _: process.note_rendered(claim))


def settle_rendered(process: WorkerProcess, queue: RenderedQueue) -> None:
    """Keep what the engine made of segments and settle their claims, many at once."""
    claims: list[HeldClaim] = []
    try:
        claims = queue.take()
        if process.handing_back.is_set():
            return  # the shutdown gives the claims back
        wanted: list[HeldClaim] = []
        for claim in claims:  # each is asked once: another thread may say so at any moment
            if claim.is_lost:  # whoever has the row now renders it
                process.held.drop(claim)
            else:
                wanted.append(claim)
        store = process.store_first if queue is process.rendered_first else process.store
        settled = process.site.settle_segments(wanted, process.host.engine, store)
        if process.handing_back.is_set():
            return
        for claim in wanted:
            process.held.drop(claim)
        _note_settled(process, settled)
    except Exception:  # left to expire
        for claim in claims:
            process.held.drop(claim)
        raise
    finally:
        queue.end_run()


def _note_settled(process: WorkerProcess, settled: Settled) -> None:
    """Have looked at once for what follows from segments that were settled."""
    process.note_made(settled.made)
    if settled.again or settled.freed:
        process.look_for_work(Kind.SEGMENT)
    if settled.done and process.has_cpu_role:
        process.look_for_work(Kind.EXPORT)  # their files, sooner than by a message
    elif settled.done and (process.is_careful or process.is_isolating):
        process.wake.set()
