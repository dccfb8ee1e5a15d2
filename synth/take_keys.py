"""Name takes by all that a rendering depends on: whoever knows a key knows whether it was made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection

import numpy as np

from synth.contract import Reference, RenderSpec

_KEY_VERSION = 1  # moves when the meaning of a take changes: audio of the old kind is not reused
_SPARE_FRAMES, _FRAMES_PER_CHAR = 40, 6
_FEWEST_FRAMES, _MOST_FRAMES = 64, 2048

VoicesKey = list[list[str]]  # per reference: digest of its codes, its transcript


def frame_cap(spoken_text: str) -> int:
    """Return the most frames that speaking a text may take, 64 to 2048.

    Calm speech needs about 1.5 frames per character at 21.5 frames a second; six leave room for
    slow and whispered speech, and end a rendering that has lost its way before it costs minutes.
    """
    frames = _SPARE_FRAMES + _FRAMES_PER_CHAR * len(spoken_text)
    return min(max(frames, _FEWEST_FRAMES), _MOST_FRAMES)


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
        key_of_voices(spec.references) if voices_key is None else voices_key,
        model_fingerprint,
        [sampling.temperature, sampling.top_p, sampling.top_k, sampling.max_frames],
        sampling.seed,
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def key_of_voices(references: Collection[Reference]) -> VoicesKey:
    """Return the part of a content key that references make."""
    return [[_codes_digest(reference), reference.text] for reference in references]


def _codes_digest(reference: Reference) -> str:
    codes = np.ascontiguousarray(reference.codes, dtype="<i2")
    return hashlib.sha256(f"{codes.shape}".encode() + codes.tobytes()).hexdigest()
