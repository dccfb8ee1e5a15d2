"""Stand in for the engine: a tone for each text, which whoever checks a file can make anew.

It has what a worker asks of an engine, slots that are busy for a while included, and no weights, so
that a killed worker is back within two seconds and the faults, not the model, are what is seen.
Each rendering that begins is noted in a file.
"""

from __future__ import annotations

import hashlib
import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from synth.contract import (
    AudioArray,
    CodesArray,
    EngineClass,
    FinishReason,
    RenderSpec,
    SegmentAudio,
    Timings,
)
from synth.engine.errors import DeviceOutOfMemoryError

SAMPLE_RATE, HOP, CODEBOOKS = 24_000, 1024, 4
STEP_SECONDS = 0.02
POISON = "poison"  # a text with this word ends the process
HANG, NO_MEMORY = "hang", "no-memory"  # files in the folder while such a fault is on
RENDERED = "rendered.txt"
ONE_IN = 3  # renderings that find no memory, once each


def expected_audio(text: str) -> AudioArray:
    """Return what a text sounds like, float32 [hop * frames]: of another one another tone."""
    digest = hashlib.sha256(text.encode()).digest()
    frames = 6 + min(len(text), 200) // 8
    pitch = 110 + int.from_bytes(digest[:2], "big") / 65536 * 770
    level = 0.1 + digest[2] / 255 * 0.3
    time_axis = np.arange(frames * HOP) / SAMPLE_RATE
    return (level * np.sin(2 * np.pi * pitch * time_axis)).astype(np.float32)


class StandInEngine:
    """Serve requests in slots, the most urgent first, each in `render_seconds`."""

    def __init__(self, slots: int, folder: Path, *, render_seconds: float) -> None:
        self.engine_class = EngineClass("tone", 1, "none", "tone", True, "tone", "none", "none")
        self.model_fingerprint = self.codec_fingerprint = "tone" * 16
        self.resampler, self.device = "builtin", "cpu"
        self.sample_rate, self.slots = SAMPLE_RATE, slots
        self.steps = 0
        self._folder, self._render_seconds = folder, render_seconds
        self._waiting: queue.PriorityQueue[tuple[int, int, RenderSpec, Any, Any]] = (
            queue.PriorityQueue()
        )
        self._count, self._open, self._lock = 0, 0, threading.Lock()
        self._hangs = False
        self._notes = os.open(folder / RENDERED, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for number in range(slots):
            threading.Thread(target=self._serve, name=f"slot {number}", daemon=True).start()

    def submit(
        self,
        spec: RenderSpec,
        *,
        priority: int = 0,
        deadline_seconds: float | None = None,
        on_audio: Callable[[AudioArray], None] | None = None,
    ) -> Future[SegmentAudio]:
        """Queue a segment, as the engine does."""
        if POISON in spec.text:
            os._exit(66)  # as a crash in native code would, without a word
        future: Future[SegmentAudio] = Future()
        with self._lock:
            self._count += 1
            self._open += 1
            self._waiting.put((priority, self._count, spec, future, on_audio))
        return future

    @property
    def undecoded(self) -> int:
        return self._open

    @property
    def is_busy(self) -> bool:
        return self._open > 0

    def encode_reference(self, waveform: AudioArray, sample_rate: int) -> CodesArray:
        """Return codes that are a digest of the clip, int16 [K, T]."""
        digest = hashlib.sha256(np.asarray(waveform, np.float32).tobytes()).digest()
        frames = round(np.shape(waveform)[-1] / sample_rate * SAMPLE_RATE / HOP)
        codes = np.resize(np.frombuffer(digest, np.uint8).astype(np.int16), (CODEBOOKS, frames))
        self.steps += 1
        return codes

    def forget_voice(self, reference: Any) -> None:
        """Do nothing: nothing is kept of a voice."""

    def warm_up(self) -> None:
        """Do nothing: there is nothing to warm."""

    def describe(self) -> dict[str, Any]:
        return {"slots_in_use": min(self._open, self.slots), "frames_made": self.steps}

    def _serve(self) -> None:
        while True:
            _, _, spec, future, on_audio = self._waiting.get()
            answer: SegmentAudio | Exception | None
            try:
                answer = None if future.cancelled() else self._render(spec, future, on_audio)
            except Exception as error:  # noqa: BLE001
                answer = error
            with self._lock:
                self._open -= 1
            with suppress(InvalidStateError):  # cancelled in this moment
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                elif answer is not None:
                    future.set_result(answer)

    def _render(
        self, spec: RenderSpec, future: Future[SegmentAudio], on_audio: Any
    ) -> SegmentAudio | None:
        name = hashlib.sha256(f"{spec.sampling.seed} {spec.text}".encode()).hexdigest()[:24]
        if (self._folder / NO_MEMORY).exists() and int(name, 16) % ONE_IN == 0:
            with suppress(FileExistsError):
                (self._folder / f"refused-{name}").touch(exist_ok=False)
                raise DeviceOutOfMemoryError("The device has no memory left for this segment.")
        # One short write: lines of several processes do not mix.
        os.write(self._notes, f"{time.clock_gettime(time.CLOCK_MONOTONIC):.3f} {name}\n".encode())
        audio = expected_audio(spec.text)
        until = time.monotonic() + self._render_seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, STEP_SECONDS))
            self._hang_if_told()
            if future.cancelled():
                return None
            self.steps += 1
        self.steps += 1
        if on_audio is not None:
            for start in range(0, len(audio), 8 * HOP):
                on_audio(audio[start : start + 8 * HOP])
        codes = np.resize(np.arange(997, dtype=np.int16), (CODEBOOKS, len(audio) // HOP))
        timings = Timings(0.0, 0.0, self._render_seconds, 0.0)
        return SegmentAudio(codes, audio, SAMPLE_RATE, FinishReason.END, timings)

    def _hang_if_told(self) -> None:
        with suppress(FileNotFoundError):
            (self._folder / HANG).unlink()
            self._hangs = True
        while self._hangs:
            time.sleep(60)
