"""Turn the codes of finished requests into audio, several at a time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from synth.contract import FinishReason, SegmentAudio, Timings
from synth.engine.codec import CodecDecoder


@dataclass(frozen=True, slots=True, eq=False)
class FinishedCodes:
    """Hold one request's codes, int64 [K, T] on the device, and where its time went."""

    codes: Tensor
    reason: FinishReason
    future: Future[SegmentAudio]
    queue_seconds: float
    prefill_seconds: float
    decode_seconds: float


def render_audio(decoder: CodecDecoder, finished: Sequence[FinishedCodes]) -> list[SegmentAudio]:
    """Decode all requests' codes in as few passes as fit; a request without frames is silent.

    `Timings.codec_seconds` of each is that of the pass it shared.
    """
    started = time.perf_counter()
    waves = decoder.decode([item.codes for item in finished])
    audio = [wave.to("cpu", torch.float32).numpy() for wave in waves]
    seconds = time.perf_counter() - started
    return [
        SegmentAudio(
            codes=item.codes.to("cpu").numpy().astype(np.int16),
            audio=wave,
            sample_rate=decoder.config.sample_rate,
            finish_reason=item.reason,
            timings=Timings(
                queue_seconds=item.queue_seconds,
                prefill_seconds=item.prefill_seconds,
                decode_seconds=item.decode_seconds,
                codec_seconds=seconds,
            ),
        )
        for item, wave in zip(finished, audio, strict=True)
    ]
