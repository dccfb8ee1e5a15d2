"""Name takes by all that a rendering depends on: whoever knows a key knows whether it was made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import asdict, dataclass

import numpy as np

from synth.contract import EngineClass, Reference, RenderSpec, Sampling

_KEY_VERSION = 2  # moves when the meaning of a take changes: audio of the old kind is not reused
_SPARE_FRAMES, _FRAMES_PER_CHAR = 40, 6
_FEWEST_FRAMES, _MOST_FRAMES = 64, 2048

VoicesKey = list[list[str]]  # per reference: digest of its codes, its transcript


@dataclass(frozen=True, slots=True)
class TakeInputs:
    """List all that the sound of a take depends on; what is added here is in every key at once.

    Normalising, lexicons and the cut into segments show in `spoken_text`; the clips and the codec
    that encoded them in the digests of `voices`; the prompt's version in the engine's model. What
    a file is made with, such as its speed, its pauses and its loudness, changes no take.
    """

    spoken_text: str
    voices: VoicesKey
    sampling: Sampling
    engine: EngineClass


def frame_cap(spoken_text: str) -> int:
    """Return the most frames that speaking a text may take, 64 to 2048.

    Calm speech needs about 1.5 frames per character at 21.5 frames a second; six leave room for
    slow and whispered speech, and end a rendering that has lost its way before it costs minutes.
    """
    frames = _SPARE_FRAMES + _FRAMES_PER_CHAR * len(spoken_text)
    return min(max(frames, _FEWEST_FRAMES), _MOST_FRAMES)


def content_key(spec: RenderSpec, engine: EngineClass, voices_key: VoicesKey | None = None) -> str:
    """Return the digest of all that a rendering depends on: same key, same audio.

    Args:
        voices_key: that of the spec's references, where the caller has it already.
    """
    voices = key_of_voices(spec.references) if voices_key is None else voices_key
    return key_of(TakeInputs(spec.text, voices, spec.sampling, engine))


def key_of(inputs: TakeInputs) -> str:
    """Return the digest of a take's inputs, 64 hex digits."""
    parts = [_KEY_VERSION, asdict(inputs)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def key_of_voices(references: Collection[Reference]) -> VoicesKey:
    """Return the part of a content key that references make."""
    return [[_codes_digest(reference), reference.text] for reference in references]


def _codes_digest(reference: Reference) -> str:
    codes = np.ascontiguousarray(reference.codes, dtype="<i2")
    return hashlib.sha256(f"{codes.shape}".encode() + codes.tobytes()).hexdigest()
