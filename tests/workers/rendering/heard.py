"""What tests of live audio compare: what is listed of a segment, and what its take holds."""

from __future__ import annotations

import uuid

import numpy as np
import soundfile
from django.core.files.storage import default_storage

from synth.models import LiveChunk, RenderJob, Segment


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
    samples: np.ndarray = np.rint(np.clip(audio, -1, 1) * 32767).astype(np.int32)
    return samples


def joined(job: RenderJob) -> np.ndarray:
    """Return a job's takes with the pauses between them, as its file has them, int32 [N]."""
    parts = []
    rows = Segment.objects.filter(job=job, status=Segment.Status.DONE).select_related("take")
    for segment in rows.order_by("chapter__index", "index"):
        assert segment.take is not None
        pause = round(segment.pause_after_ms * segment.take.sample_rate / 1000)
        parts += [take_samples(segment), np.zeros(pause, np.int32)]
    return np.concatenate(parts)
