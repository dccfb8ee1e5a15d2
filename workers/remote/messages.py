"""The messages between a remote worker and its site: msgpack, each of one type, checked as read.

Codes are safetensors, a take's audio is float32 and a clip's FLAC; nothing is base64.
"""

from __future__ import annotations

import math
import uuid
from concurrent.futures import CancelledError
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, Struct

from synth.contract import CodedError, EngineClass, FinishReason, SegmentAudio, Timings
from ttsweb.work import Kind
from workers.audio.clips import ClipError
from workers.kinds import is_outage
from workers.rendering.codes import CodesObjectError, pack_codes, unpack_codes

PROTOCOL = 3  # moves when a message changes its meaning: other workers are refused
PROTOCOL_HEADER, NAME_HEADER = "X-Worker-Protocol", "X-Worker-Name"
MEDIA_TYPE = "application/vnd.ttsweb.worker+msgpack"
ROOT = "/api/internal/v1/worker"
KINDS = {Kind.VERSION.label: Kind.VERSION, Kind.SEGMENT.label: Kind.SEGMENT}  # of work
HELD_KINDS = {**KINDS, Kind.CODES.label: Kind.CODES}

Whole = Annotated[int, Meta(ge=0, le=2**31 - 1)]
SegmentPk = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Digest = Annotated[str, Meta(max_length=64)]
Label = Annotated[str, Meta(max_length=20)]
RunName = Annotated[str, Meta(max_length=32)]
Sentence = Annotated[str, Meta(max_length=2000)]
Message = TypeVar("Message")
_MOST_CLAIMS = 10_000


class BadMessageError(Exception):
    """A message is not of the type that is expected; the text says where."""


class Part(Struct, forbid_unknown_fields=True):
    """The base of all messages and their parts."""


class Nothing(Part):
    pass


class HeldRow(Part):
    kind: Label
    pk: SegmentPk | uuid.UUID
    token: uuid.UUID


class HeldRows(Part):
    claims: Annotated[list[HeldRow], Meta(max_length=_MOST_CLAIMS)]


class Places(Part):
    """The places of claims in the list that was sent."""

    places: list[Whole]


class Begin(Part):
    run: RunName
    previous: RunName


class Welcome(Part):
    """`namesake`: when another living process last reported under the name; nothing was begun."""

    lease_seconds: float
    namesake: str = ""


class Status(Part):
    columns: dict[str, str | dict[str, str | bool | float]]
    is_start: bool


class LossCounts(Part):
    waiting: list[Whole]
    lately: list[Whole]


class Codec(Part):
    codec: Digest


class CareAsked(Part):
    since: int | None


class CareGiven(Part):
    evicted: list[str]
    newest: int
    trouble: str


class SuspectAsked(Part):
    kinds: Annotated[list[Label], Meta(max_length=20)]
    codec: Digest


class SuspectFound(Part):
    kind: Label = ""
    pk: int | uuid.UUID = 0


class RowsWanted(Part):
    kind: Label
    room: Annotated[int, Meta(ge=0, le=100)]
    token: uuid.UUID
    pk: SegmentPk | uuid.UUID | None = None


class RowsClaimed(Part):
    pks: list[uuid.UUID]


class SegmentRoom(Part):
    codec: Digest
    room: Annotated[int, Meta(ge=-(10**4), le=10**4)]
    interactive_room: Annotated[int, Meta(ge=0, le=10**4)]
    slots: Annotated[int, Meta(ge=1, le=10**4)]
    held_limit: Whole | None
    unrendered: Annotated[list[SegmentPk], Meta(max_length=_MOST_CLAIMS)]
    held: Whole
    held_interactive: Whole
    token: uuid.UUID
    only: SegmentPk | None = None  # a suspect, whatever else waits


class SegmentRow(Part):
    pk: int
    job_id: uuid.UUID
    priority: int


class SegmentsClaimed(Part):
    segments: list[SegmentRow]
    is_careful: bool


class EngineNamed(Part):
    """What of an engine is in the names of its takes."""

    codec_fingerprint: Digest
    engine_class: EngineClass


class SegmentsHeld(Part):
    claims: Annotated[list[HeldRow], Meta(max_length=_MOST_CLAIMS)]
    engine: EngineNamed
    known: Annotated[list[Digest], Meta(max_length=1000)]  # references that the worker has


class ReferenceNamed(Part):
    digest: str  # of its codes
    text: str


class TurnNamed(Part):
    digest: str  # of its codes
    text: str
    key: str


class SegmentAsked(Part):
    pk: int
    text: str
    references: list[ReferenceNamed]
    history: list[TurnNamed]
    seed: int
    temperature: float
    top_p: float
    top_k: int
    max_frames: int
    content_key: str
    clips: list[str]
    is_live: bool
    language: str
    may_keep: bool


class SegmentsAsked(Part):
    """`codes`, by digest, are the references that the worker does not have, and all of history."""

    segments: list[SegmentAsked]
    codes: dict[str, bytes]
    awaited: list[str]
    made: list[str]


class Failure(Part):
    """An error of a worker: `how` is cancelled, coded, clip, outage or unexpected."""

    how: Label
    code: Annotated[str, Meta(pattern="^[a-z_]{0,50}$")] = ""
    message: Sentence = ""
    retryable: bool = False


class Rendered(Part):
    codes: bytes
    audio: bytes
    sample_rate: Annotated[int, Meta(ge=8000, le=192_000)]
    finish_reason: FinishReason
    seconds: Annotated[list[float], Meta(min_length=4, max_length=4)]  # as in `Timings`


class SegmentSettled(Part):
    claim: HeldRow
    content_key: Digest  # of what was asked for
    outcome: Rendered | None = None
    failure: Failure | None = None
    take_id: uuid.UUID | None = None


class SegmentsSettled(Part):
    segments: Annotated[list[SegmentSettled], Meta(min_length=1, max_length=100)]
    engine: EngineNamed
    is_screened: bool  # as the card of the worker's checkpoint says


class Failed(Part):
    claim: HeldRow
    failure: Failure


class PieceSent(Part):
    job_id: uuid.UUID
    segment_id: SegmentPk
    attempt: uuid.UUID
    index: Annotated[int, Meta(ge=0, le=100_000)]
    samples: bytes
    sample_rate: Annotated[int, Meta(ge=8000, le=192_000)]
    is_last: bool


class PiecesSent(Part):
    pieces: Annotated[list[PieceSent], Meta(max_length=100)]


class Broken(Part):
    attempts: list[uuid.UUID]


class ClipNames(Part):
    clips: list[uuid.UUID]
    is_wanted: bool = True


class VersionHeld(Part):
    claim: HeldRow


class ClipWanted(Part):
    claim: HeldRow
    clip: uuid.UUID
    codec: Digest
    token: uuid.UUID


class ClipFound(Part):
    """`codes_pk` None: its codes are there. Not wanted: its version was settled meanwhile."""

    is_wanted: bool = True
    frames: int = 0
    codes_pk: uuid.UUID | None = None
    content: bytes = b""
    container: str = ""


class ClipMade(Part):
    claim: HeldRow
    clip: uuid.UUID
    codes_pk: uuid.UUID
    token: uuid.UUID
    codes: bytes
    resampler: Label
    flac: bytes
    measures: dict[str, float | str | list[Annotated[int, Meta(ge=0, le=255)]]]


class VersionMade(Part):
    claim: HeldRow
    codec: Digest


class Wanted(Part):
    is_wanted: bool


def write(message: Part) -> bytes:
    return msgspec.msgpack.encode(message)


def read(kind: type[Message], body: bytes) -> Message:
    """Return a message.

    Raises:
        BadMessageError: the body is none of this kind.
    """
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError) as error:
        raise BadMessageError(str(error) or type(error).__name__) from error


def failure_of(error: BaseException) -> Failure:
    """Return what a worker tells of an error."""
    message = str(error)[:2000]
    if isinstance(error, CancelledError):
        return Failure("cancelled")
    if isinstance(error, CodedError):
        return Failure("coded", error.code, message, error.retryable)
    if isinstance(error, ClipError):
        return Failure("clip", error.code, error.message[:2000])
    return Failure("outage" if is_outage(error) else "unexpected", message=message)


def error_of(failure: Failure) -> Exception:
    """Return an error that means on the site what it meant to the worker."""
    if failure.how == "cancelled":
        return CancelledError()
    if failure.how == "clip":
        return ClipError(failure.code, failure.message)
    if failure.how == "coded":
        return RemoteError(failure)
    if failure.how == "outage":
        return OSError(failure.message)
    return RuntimeError(failure.message)


class RemoteError(CodedError):
    """What a worker's engine refused or failed at."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.code, self.retryable = failure.code, failure.retryable


def rendered_of(audio: SegmentAudio) -> Rendered:
    timings = audio.timings
    seconds = [
        timings.queue_seconds, timings.prefill_seconds, timings.decode_seconds,
        timings.codec_seconds,
    ]  # fmt: skip
    samples = audio.audio.astype("<f4", copy=False).tobytes()
    codes = pack_codes(audio.codes)
    return Rendered(codes, samples, audio.sample_rate, audio.finish_reason, seconds)


def audio_of(rendered: Rendered, *, max_frames: int) -> SegmentAudio:
    """Return what a worker rendered.

    Raises:
        BadMessageError: it is no rendering, or longer than was asked for.
    """
    codes = codes_of(rendered.codes)
    if not 1 <= codes.shape[0] <= 64 or codes.shape[1] > max_frames:
        raise BadMessageError(f"codes of the shape {codes.shape} were not asked for")
    if not all(math.isfinite(one) and one >= 0 for one in rendered.seconds):
        raise BadMessageError("a time is no number of seconds")
    audio = samples_of(rendered.audio)
    timings = Timings(*rendered.seconds)
    return SegmentAudio(codes, audio, rendered.sample_rate, rendered.finish_reason, timings)


def codes_of(content: bytes) -> Any:
    try:
        return unpack_codes(content, {})
    except CodesObjectError as error:
        raise BadMessageError(f"codes: {error}") from error


def samples_of(content: bytes) -> Any:
    """Return audio, float32 [N], of its bytes."""
    if len(content) % 4:
        raise BadMessageError("audio is not made of whole samples")
    return np.frombuffer(content, dtype="<f4").astype(np.float32, copy=False)
