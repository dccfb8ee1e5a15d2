"""Turn a segment into what the engine is asked for, and name the result by what it depends on."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass

import numpy as np

from synth.contract import Reference, RenderSpec, Sampling
from synth.engine import Engine, EngineError
from synth.models import Segment
from voices.models import VoiceVersion
from workers.codes import CodesLookup

_KEY_VERSION = 1  # moves when the meaning of a take changes: audio of the old kind is not reused
_SPARE_FRAMES, _FRAMES_PER_CHAR = 40, 6
_FEWEST_FRAMES, _MOST_FRAMES = 64, 2048


class CodesMissingError(Exception):
    """A clip of a pinned version has no codes: the version must be encoded again first."""

    def __init__(self, version_id: uuid.UUID) -> None:
        super().__init__(f"no codes for version {version_id}")
        self.version_id = version_id


class ReferenceRemovedError(EngineError):
    """A pinned version has no clips any more, so no encoding can bring its codes back."""

    code = "reference_removed"


@dataclass(frozen=True, slots=True, eq=False)
class RenderRequest:
    """Hold a segment's request, its take's content key (64 hex digits) and its priority."""

    spec: RenderSpec
    content_key: str
    priority: int


def frame_cap(spoken_text: str) -> int:
    """Return the most frames that speaking a text may take, 64 to 2048.

    Calm speech needs about 1.5 frames per character at 21.5 frames a second; six leave room for
    slow and whispered speech, and end a rendering that has lost its way before it costs minutes.
    """
    frames = _SPARE_FRAMES + _FRAMES_PER_CHAR * len(spoken_text)
    return min(max(frames, _FEWEST_FRAMES), _MOST_FRAMES)


def build_request(segment: Segment, codes: CodesLookup, engine: Engine) -> RenderRequest:
    """Return the request of a segment whose `job` is loaded.

    Raises:
        CodesMissingError: a version has to be encoded again.
        ReferenceRemovedError: a version's clips were removed.
        OSError: the storage cannot be read at the moment.
    """
    job = segment.job
    pinned = job.voices.select_related("version__voice").order_by("speaker")
    references = tuple(_reference(row.version, codes, engine.codec_fingerprint) for row in pinned)
    sampling = Sampling(
        seed=segment.seed,
        temperature=job.temperature,
        top_p=job.top_p,
        top_k=job.top_k,
        max_frames=frame_cap(segment.spoken_text),
    )
    spec = RenderSpec(
        text=segment.spoken_text,
        reference=references[0] if len(references) == 1 else references or None,
        sampling=sampling,
    )
    return RenderRequest(spec, content_key(spec, engine.model_fingerprint), job.priority)


def content_key(spec: RenderSpec, model_fingerprint: str) -> str:
    """Return the digest of all that a rendering depends on: same key, same audio."""
    sampling = spec.sampling
    parts = [
        _KEY_VERSION,
        spec.text,
        [[_codes_digest(reference), reference.text] for reference in spec.references],
        model_fingerprint,
        [sampling.temperature, sampling.top_p, sampling.top_k, sampling.max_frames],
        sampling.seed,
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _codes_digest(reference: Reference) -> str:
    codes = np.ascontiguousarray(reference.codes, dtype="<i2")
    return hashlib.sha256(f"{codes.shape}".encode() + codes.tobytes()).hexdigest()


def _reference(version: VoiceVersion, codes: CodesLookup, codec: str) -> Reference:
    """Return a version as one reference: its clips' codes and transcripts, one after the other."""
    keep = version.voice is None or version.voice.cache_codes
    clips = list(version.clips.select_related("stored"))
    if not clips:
        raise ReferenceRemovedError(
            "The reference clip was removed, as its voice was deleted or its job had ended: "
            "submit the text again with a voice or a clip."
        )
    found = [codes.find(clip.stored, codec, keep=keep) for clip in clips]
    parts = [part for part in found if part is not None]
    if len(parts) < len(clips):
        raise CodesMissingError(version.pk)
    text = " ".join(clip.transcript for clip in clips)
    return Reference(text, parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1))
