"""Takes for tests: stored as a worker stores many, made to sound like speech, heard in pieces."""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile
from django.core.files.storage import default_storage

from synth.contract import AudioArray, FinishReason, SegmentAudio, Timings
from synth.models import Export, LiveChunk, RenderJob, Segment, Take
from tests.factories import claim as claim_waiting
from tests.factories import finish_segment
from tests.workers.conftest import TINY, MiniatureProcess
from workers.process.claiming import take_exports
from workers.site.segments import add_takes, store_take

RATE = 24_000


def screened_checkpoint(folder: Path) -> Path:
    """Return a copy of the tiny checkpoint without the card that has its screen off.

    Its random weights never end a sentence by themselves.
    """
    shutil.copytree(TINY, folder, ignore=shutil.ignore_patterns("card.json"))
    return folder


def save_take(content_key: str, rendered: SegmentAudio) -> Take:
    """Store codes and audio and return the take with its row."""
    return add_takes([store_take(content_key, rendered)])[content_key]


def stored_files(folder: str = "") -> list[Path]:
    """Return the files below a folder of the storage."""
    return [path for path in Path(default_storage.path(folder)).rglob("*") if path.is_file()]


def listed_samples(segment: Segment, attempt: uuid.UUID | None = None) -> np.ndarray:
    """Return the s16 samples that are listed of one attempt, int32 [N]; of its take by default."""
    wanted = attempt or segment.take_id
    assert wanted is not None
    rows = LiveChunk.objects.filter(segment=segment, attempt=wanted)
    parts = []
    for number, row in enumerate(rows.order_by("index")):
        assert row.index == number
        content = default_storage.open(row.key).read() if row.key else b""
        samples = np.frombuffer(content, dtype="<i2").astype(np.int32)
        assert len(samples) == row.num_samples
        parts.append(samples)
    return np.concatenate([np.empty(0, np.int32), *parts])


def take_samples(segment: Segment) -> np.ndarray:
    """Return a segment's final take as 16-bit samples, int32 [N]."""
    assert segment.take is not None
    audio, _ = soundfile.read(default_storage.open(segment.take.audio_key), dtype="float32")
    samples: np.ndarray = np.rint(audio * 2**15).clip(-(2**15), 2**15 - 1)
    return samples.astype(np.int32)


def joined(job: RenderJob) -> np.ndarray:
    """Return a job's takes with the pauses between them, as its file has them, int32 [N]."""
    parts = []
    rows = Segment.objects.filter(job=job, status=Segment.Status.DONE).select_related("take")
    for segment in rows.order_by("chapter__index", "index"):
        assert segment.take is not None
        pause = round(segment.pause_after_ms * segment.take.sample_rate / 1000)
        parts += [take_samples(segment), np.zeros(pause, np.int32)]
    return np.concatenate(parts)


def voiced(seconds: float, *, level: float = 0.2, rate: int = RATE, seed: int = 0) -> AudioArray:
    """Return pulses of a throat through a vowel, in syllables: far peaks above a low mean."""
    rng = np.random.default_rng(seed)
    count = round(seconds * rate)
    t = np.arange(count) / rate
    pulses = (np.mod(t * 110, 1) < 110 / rate).astype(np.float64)
    vowel = np.exp(-np.arange(200) / 40) * np.sin(np.arange(200) * 0.3)
    spoken = np.convolve(pulses, vowel)[:count] * (np.sin(2 * np.pi * 3 * t) > -0.5)
    spoken += 0.002 * rng.standard_normal(count)
    return np.asarray(level * spoken / np.abs(spoken).max(), dtype=np.float32)


def rendered(audio: AudioArray, *, rate: int = RATE) -> SegmentAudio:
    """Return audio as the engine gives it."""
    codes = np.zeros((10, 20), dtype=np.int16)
    return SegmentAudio(codes, audio, rate, FinishReason.END, Timings(0, 0, 0, 0))


def render_with(takes: Sequence[AudioArray], *, rate: int = RATE) -> None:
    """Finish queued segments, in order, with these takes; equal ones are one take."""
    for claim, audio in zip(claim_waiting(len(takes)), takes, strict=True):
        name = hashlib.sha256(audio.tobytes() + str(rate).encode()).hexdigest()
        finish_segment(claim, save_take(name, rendered(audio, rate=rate)))


def make_export_of(process: MiniatureProcess) -> Export:
    """Make the file that waits and return its row."""
    take_exports(process)
    process.run_all()
    return Export.objects.latest("created_at")
