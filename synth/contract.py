"""Define the values that pass between the web half and the engine: plain and frozen.

Whoever knows all that a rendering depends on knows its take's name, and so whether it was made.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:  # commands that only talk to a server read the limits, and need no numpy
    import numpy as np
    import numpy.typing as npt

    CodesArray = npt.NDArray[np.int16]
    AudioArray = npt.NDArray[np.float32]
else:
    CodesArray = AudioArray = Any

MAX_TOP_K = 64  # candidates that every draw keeps; a larger top_k is refused, not cut


@dataclass(frozen=True, slots=True)
class Limits:
    """Hold the range of a number; an open end is itself outside."""

    low: float
    high: float
    whole: bool = False
    low_open: bool = False
    high_open: bool = False

    def holds(self, number: float) -> bool:
        if number in (self.low, self.high):
            return not (self.low_open if number == self.low else self.high_open)
        return self.low < number < self.high

    @property
    def words(self) -> str:
        """Return the range in words, as it stands behind "Expected"."""
        kind = "a whole number" if self.whole else "a number"
        low = f"greater than {self.low} and" if self.low_open else f"from {self.low}"
        return f"{kind} {low} {'less than' if self.high_open else 'up to'} {self.high}"

    @property
    def ends(self) -> str:
        return f"{self.low} to {self.high}"


TEMPERATURE = Limits(0, 2, low_open=True, high_open=True)
TOP_P = Limits(0, 1, low_open=True)
TOP_K = Limits(1, MAX_TOP_K, whole=True)
SEED = Limits(0, 2**63 - 1, whole=True)
HISTORY = Limits(0, 2, whole=True)  # earlier segments that a segment may be rendered after


class CodedError(Exception):
    """An error with a stable code, which says whether another attempt can help."""

    code = "error"
    retryable = False


class FinishReason(enum.StrEnum):
    """Say why a rendering stopped."""

    END = "end"  # the model said <|im_end|>
    FRAME_LIMIT = "frame_limit"  # the request's or the text's frame cap: speech may be cut short
    CONTEXT_FULL = "context_full"  # no position is left in the slow AR


@dataclass(frozen=True, slots=True)
class Sampling:
    """Hold the sampling parameters of one request.

    `top_p` and `top_k` cut first, then `temperature` scales what is left: see their limits.
    `max_frames` caps the frames of speech.
    """

    seed: int = 0
    temperature: float = 0.8
    top_p: float = 0.8
    top_k: int = 30
    max_frames: int = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """Hold one speaker's reference: what is said in the clip and its codes, int16 [K, T]."""

    text: str
    codes: CodesArray


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """Hold an earlier segment: its spoken text, its codes int16 [K, T], its take's content key."""

    text: str
    codes: CodesArray
    key: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class RenderSpec:
    """Ask for one segment: its spoken text, the speaker(s), the sampling parameters.

    `reference` is one speaker, several (speaker i is `<|speaker:i|>` in the text), or None.
    `history` is what was said just before, the oldest first.
    """

    text: str
    reference: Reference | tuple[Reference, ...] | None = None
    sampling: Sampling = field(default_factory=Sampling)
    history: tuple[Turn, ...] = ()

    @property
    def references(self) -> tuple[Reference, ...]:
        """Return the speakers in order; empty when no voice is given."""
        if self.reference is None:
            return ()
        return (self.reference,) if isinstance(self.reference, Reference) else self.reference


@dataclass(frozen=True, slots=True)
class EngineClass:
    """Hold all of an engine that the sound of its takes depends on; equal ones share takes.

    The number of slots is not in it, nor who shares a step: without `strict` these move last bits
    from one rendering to the next in one engine as well.
    """

    model: str  # digest of configuration, weights, tokenizer and the prompt's layout version
    sampler: int  # version of how tokens are drawn
    numbers: str  # of activations and of matrices, such as "float32 int8"
    backend: str  # what makes frames: "compiled avx2", "PyTorch AVX2 packed", "Triton sm_90 x132"
    strict: bool
    decoder: str  # digest of the weights that turn codes into samples
    decoder_numbers: str  # float32, tf32 or bfloat16
    decoder_backend: str

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self | None:
        """Return what a worker has stored; None where that worker knew fewer facts, or more."""
        names = {one.name for one in fields(cls)}
        return cls(**stored) if set(stored) == names else None


@dataclass(frozen=True, slots=True)
class Timings:
    """Hold where a rendering's wall time went, in seconds."""

    queue_seconds: float
    prefill_seconds: float
    decode_seconds: float
    codec_seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class SegmentAudio:
    """Hold one rendered segment: codes int16 [K, T], mono audio float32 [hop_length * T]."""

    codes: CodesArray
    audio: AudioArray
    sample_rate: int
    finish_reason: FinishReason
    timings: Timings


_KEY_VERSION = 2  # moves when the meaning of a take changes: audio of the old kind is not reused
_SPARE_FRAMES, _FRAMES_PER_CHAR = 40, 6
_FEWEST_FRAMES, _MOST_FRAMES = 64, 2048

VoicesKey = list[list[str]]  # per reference: digest of its codes, its transcript


@dataclass(frozen=True, slots=True)
class TakeInputs:
    """List all that the sound of a take depends on; what is added here is in every key at once.

    Normalising, lexicons and the cut into segments show in `spoken_text`; the clips and the codec
    that encoded them in the digests of `voices`; the prompt's version in the engine's model.
    `history` are the keys of the takes before it. What a file is made with, such as its speed, its
    pauses and its loudness, changes no take.
    """

    spoken_text: str
    voices: VoicesKey
    sampling: Sampling
    engine: EngineClass
    history: tuple[str, ...] = ()


def frame_cap(spoken_text: str) -> int:
    """Return the most frames that speaking a text may take, 64 to 2048.

    Calm speech needs about 1.5 frames per character at 21.5 frames a second; six leave room for
    slow and whispered speech, and end a rendering that has lost its way before it costs minutes.
    """
    frames = _SPARE_FRAMES + _FRAMES_PER_CHAR * len(spoken_text)
    return min(max(frames, _FEWEST_FRAMES), _MOST_FRAMES)


def room_needed(max_frames: int) -> int:
    """Return the frames that a slot must have room for where a rendering may take at most so many.

    Half of them: twice what calm speech takes by `frame_cap`. Speech that a slot has no room for
    ends as CONTEXT_FULL.
    """
    return -(-max_frames // 2)


def content_key(spec: RenderSpec, engine: EngineClass, voices_key: VoicesKey | None = None) -> str:
    """Return the digest of all that a rendering depends on: same key, same audio.

    Args:
        voices_key: that of the spec's references, where the caller has it already.

    Raises:
        ValueError: a turn of the history is of no take, so that it has no key.
    """
    voices = key_of_voices(spec.references) if voices_key is None else voices_key
    history = tuple(turn.key for turn in spec.history)
    if not all(history):
        raise ValueError("a turn of the history has no content key")
    return key_of(TakeInputs(spec.text, voices, spec.sampling, engine, history))


def key_of(inputs: TakeInputs) -> str:
    """Return the digest of a take's inputs, 64 hex digits."""
    said = asdict(inputs)
    if not inputs.history:  # the names of takes from before there was any
        del said["history"]
    parts = [_KEY_VERSION, said]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def key_of_voices(references: Collection[Reference | Turn]) -> VoicesKey:
    """Return the digest of the codes and the text of each."""
    codes = [one.codes.astype("<i2", order="C", copy=False) for one in references]
    digests = [hashlib.sha256(f"{one.shape}".encode() + one.tobytes()).hexdigest() for one in codes]
    return [[digest, one.text] for digest, one in zip(digests, references, strict=True)]
