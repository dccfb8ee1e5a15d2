"""Turn segments into what the engine is asked for, and name each result by what it depends on."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Collection, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass

import numpy as np

from synth.contract import Reference, RenderSpec, Sampling
from synth.engine import Engine, EngineError
from synth.models import JobVoice, RenderJob, Segment
from voices.models import ReferenceClip, VoiceVersion
from workers.codes import CodesLookup

_KEY_VERSION = 1  # moves when the meaning of a take changes: audio of the old kind is not reused
_SPARE_FRAMES, _FRAMES_PER_CHAR = 40, 6
_FEWEST_FRAMES, _MOST_FRAMES = 64, 2048

VoicesKey = list[list[str]]  # per reference: digest of its codes, its transcript


class CodesMissingError(Exception):
    """A clip of a pinned version has no codes: the version must be encoded again first."""

    def __init__(self, version_id: uuid.UUID) -> None:
        super().__init__(f"no codes for version {version_id}")
        self.version_id = version_id


class ReferenceRemovedError(EngineError):
    """A pinned version has no clips any more, so no encoding can bring its codes back."""

    code = "reference_removed"

    def __init__(self) -> None:
        super().__init__(
            "The reference clip was removed, as its job had ended: submit the text again with a "
            "voice or a clip."
        )


class VoiceDeletedError(EngineError):
    """The voice was deleted after the segment was claimed and before it was begun."""

    code = "voice_deleted"

    def __init__(self, name: str) -> None:
        super().__init__(f"The voice {name!r} was deleted before this text was spoken.")


@dataclass(frozen=True, slots=True, eq=False)
class RenderRequest:
    """Hold a segment's request, its take's content key (64 hex digits) and its priority.

    `clips` are the fingerprints of the clips behind the spec's references; `is_live` says that its
    job is listened to while it is rendered.
    """

    spec: RenderSpec
    content_key: str
    priority: int
    clips: tuple[str, ...] = ()
    is_live: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _JobVoices:
    """Hold what all segments of a job share: references, clips, their part of a content key."""

    references: tuple[Reference, ...]
    clips: tuple[str, ...]
    key: VoicesKey


def frame_cap(spoken_text: str) -> int:
    """Return the most frames that speaking a text may take, 64 to 2048.

    Calm speech needs about 1.5 frames per character at 21.5 frames a second; six leave room for
    slow and whispered speech, and end a rendering that has lost its way before it costs minutes.
    """
    frames = _SPARE_FRAMES + _FRAMES_PER_CHAR * len(spoken_text)
    return min(max(frames, _FEWEST_FRAMES), _MOST_FRAMES)


def build_requests(
    segment_ids: Collection[int], codes: CodesLookup, engine: Engine
) -> dict[int, RenderRequest | Exception]:
    """Return the requests of segments, by primary key, with a few queries for all of them.

    A segment whose row is gone is left out. Where a request cannot be built there is the reason:
    CancelledError when its job was cancelled, CodesMissingError when a version has to be encoded
    again, VoiceDeletedError or ReferenceRemovedError when its clips were removed, OSError when the
    storage cannot be read at the moment.
    """
    rows = Segment.objects.filter(pk__in=segment_ids).values_list(
        "pk", "job_id", "spoken_text", "seed"
    )
    found = list(rows)
    jobs = RenderJob.objects.defer("text").in_bulk({job_id for _, job_id, _, _ in found})
    voices = _voices_of(jobs, codes, engine.codec_fingerprint)
    requests: dict[int, RenderRequest | Exception] = {}
    for pk, job_id, text, seed in found:
        job, voice = jobs.get(job_id), voices.get(job_id)
        if job is None or voice is None:
            continue  # deleted in this moment
        if job.cancel_requested:
            requests[pk] = CancelledError()
        elif isinstance(voice, Exception):
            requests[pk] = voice
        else:
            requests[pk] = _request(job, voice, text, seed, engine.model_fingerprint)
    return requests


def content_key(
    spec: RenderSpec, model_fingerprint: str, voices_key: VoicesKey | None = None
) -> str:
    """Return the digest of all that a rendering depends on: same key, same audio.

    Args:
        voices_key: that of the spec's references, where the caller has it already.
    """
    sampling = spec.sampling
    parts = [
        _KEY_VERSION,
        spec.text,
        _voices_key(spec.references) if voices_key is None else voices_key,
        model_fingerprint,
        [sampling.temperature, sampling.top_p, sampling.top_k, sampling.max_frames],
        sampling.seed,
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _request(
    job: RenderJob, voices: _JobVoices, text: str, seed: int, model_fingerprint: str
) -> RenderRequest:
    sampling = Sampling(
        seed=seed,
        temperature=job.temperature,
        top_p=job.top_p,
        top_k=job.top_k,
        max_frames=frame_cap(text),
    )
    references = voices.references
    reference = references[0] if len(references) == 1 else references or None
    spec = RenderSpec(text=text, reference=reference, sampling=sampling)
    key = content_key(spec, model_fingerprint, voices.key)
    is_live = job.live_requested_at is not None
    return RenderRequest(spec, key, job.priority, voices.clips, is_live)


def _voices_key(references: Collection[Reference]) -> VoicesKey:
    return [[_codes_digest(reference), reference.text] for reference in references]


def _codes_digest(reference: Reference) -> str:
    codes = np.ascontiguousarray(reference.codes, dtype="<i2")
    return hashlib.sha256(f"{codes.shape}".encode() + codes.tobytes()).hexdigest()


def _voices_of(
    jobs: Collection[uuid.UUID], codes: CodesLookup, codec: str
) -> dict[uuid.UUID, _JobVoices | Exception]:
    """Return what each job speaks with, or why it cannot; a version is looked up once for all."""
    pinned = JobVoice.objects.filter(job__in=jobs).select_related("version__voice")
    versions_of: dict[uuid.UUID, list[VoiceVersion]] = {job_id: [] for job_id in jobs}
    for row in pinned.order_by("speaker"):
        versions_of[row.job_id].append(row.version)
    versions = {one.pk: one for rows in versions_of.values() for one in rows}
    clips: dict[uuid.UUID, list[ReferenceClip]] = {pk: [] for pk in versions}
    found = ReferenceClip.objects.filter(version__in=versions).select_related("stored")
    for clip in found.order_by("version", "index"):
        clips[clip.version_id].append(clip)
    references: dict[uuid.UUID, Reference | Exception] = {}
    for pk, version in versions.items():
        try:
            references[pk] = _reference(version, clips[pk], codes, codec)
        except (CodesMissingError, EngineError, OSError) as error:
            references[pk] = error
    return _joined(versions_of, references, clips)


def _joined(
    versions_of: Mapping[uuid.UUID, list[VoiceVersion]],
    references: Mapping[uuid.UUID, Reference | Exception],
    clips: Mapping[uuid.UUID, list[ReferenceClip]],
) -> dict[uuid.UUID, _JobVoices | Exception]:
    """Return each job's references together; jobs of the same versions share one object."""
    shared: dict[tuple[uuid.UUID, ...], _JobVoices | Exception] = {}
    for versions in versions_of.values():
        key = tuple(version.pk for version in versions)
        if key in shared:
            continue
        parts = [references[pk] for pk in key]
        failed = next((part for part in parts if isinstance(part, Exception)), None)
        whole = tuple(part for part in parts if isinstance(part, Reference))
        fingerprints = tuple(clip.stored.fingerprint for pk in key for clip in clips[pk])
        shared[key] = failed or _JobVoices(whole, fingerprints, _voices_key(whole))
    return {
        job_id: shared[tuple(version.pk for version in versions)]
        for job_id, versions in versions_of.items()
    }


def _reference(
    version: VoiceVersion, clips: list[ReferenceClip], codes: CodesLookup, codec: str
) -> Reference:
    """Return a version as one reference: its clips' codes and transcripts, one after the other."""
    keep = version.voice is None or version.voice.cache_codes
    if version.voice is not None and version.voice.deleted_at is not None:
        raise VoiceDeletedError(version.voice.name)
    if not clips:
        raise ReferenceRemovedError
    found = [codes.find(clip.stored, codec, keep=keep) for clip in clips]
    parts = [part for part in found if part is not None]
    if len(parts) < len(clips):
        raise CodesMissingError(version.pk)
    text = " ".join(clip.transcript for clip in clips)
    return Reference(text, parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1))
