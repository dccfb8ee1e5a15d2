"""Make the answer to a request from its codes and their audio."""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from synth.contract import AudioArray, FinishReason, SegmentAudio, Timings
from synth.engine.errors import DeviceOutOfMemoryError
from synth.engine.slots.live_audio import LiveAudio
from synth.engine.slots.out_of_memory import is_out_of_memory

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class FinishedCodes:
    """Hold one request's codes, integers [K, T], and where its time went.

    `made` comes when the device has written the codes. The times are those of the host, which on
    CUDA may be a few frames ahead of the device.
    """

    codes: Tensor
    made: torch.cuda.Event | None
    reason: FinishReason
    future: Future[SegmentAudio]
    priority: int
    queue_seconds: float
    prefill_seconds: float
    decode_seconds: float

    @property
    def num_frames(self) -> int:
        """Return T."""
        return self.codes.shape[1]


@dataclass(frozen=True, slots=True, eq=False)
class LiveChunk:
    """Hold the next codes of a stream, integers [K, n]; with its last chunk comes `finished`."""

    live: LiveAudio
    future: Future[SegmentAudio]
    codes: Tensor
    made: torch.cuda.Event | None
    finished: FinishedCodes | None = None


def segment_audio(
    finished: FinishedCodes, wave: AudioArray, sample_rate: int, *, codec_started_at: float
) -> SegmentAudio:
    """Return a request's answer; `codec_seconds` are those since the pass it shared began."""
    return SegmentAudio(
        codes=finished.codes.to("cpu").numpy().astype(np.int16),
        audio=wave,
        sample_rate=sample_rate,
        finish_reason=finished.reason,
        timings=Timings(
            queue_seconds=finished.queue_seconds,
            prefill_seconds=finished.prefill_seconds,
            decode_seconds=finished.decode_seconds,
            codec_seconds=time.perf_counter() - codec_started_at,
        ),
    )


def give(future: Future[SegmentAudio], outcome: SegmentAudio | Exception) -> None:
    """Set a future's outcome unless it has one already, as when it was cancelled."""
    if isinstance(outcome, Exception) and is_out_of_memory(outcome):
        outcome = DeviceOutOfMemoryError(
            "The device has no memory for this segment, even alone. Lower TTS_ENGINE_SLOTS "
            "or TTS_ENGINE_MAX_POSITIONS, or use a device with more memory."
        )
    try:
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
    except InvalidStateError:
        logger.debug("a result came after its request had ended")
