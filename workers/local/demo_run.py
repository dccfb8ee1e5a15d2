"""The demo's work: a warm worker, an encoded voice, a rendered text and its file."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Sum

from ttsweb.leases import database_now
from ttsweb.terminal.progress import Progress
from voices.models import ClipCodes, VoiceVersion
from workers.local.first_run import (
    DEMO_CLIP,
    MORE_DEMO_CLIPS,
    ClipSource,
    find_or_make_voice,
    newest_version,
)
from workers.local.local_worker import LocalWorker
from workers.local.speak import check_text, submit_text
from workers.local.waiting import save_audio, summary, wait_encoded, wait_ended

DEFAULT_TEXT = (
    "The machine stood in the long room. I saw the pale light of the lamp. "
    "Then the sound of the wind came back."
)
FORMAT = "wav"


@dataclass(frozen=True)
class DemoResult:
    """What a run of the demo made, and how often the encoder ran for it."""

    path: Path
    audio_seconds: float
    encoder_runs: int
    voice_name: str


def render_demo(
    source: ClipSource, text: str, user: User, worker: LocalWorker, progress: Progress
) -> DemoResult:
    """Speak `text` with the voice of `source`, through the queue and the worker process.

    Raises:
        StepError: with the code and sentence of the step that failed.
    """
    check_text(text)
    started_at = database_now()
    voice = find_or_make_voice(source, user)
    others = [
        find_or_make_voice(clip, user) for clip in (MORE_DEMO_CLIPS if source is DEMO_CLIP else ())
    ]
    progress.begin("Worker", "warming up")
    worker.wait_ready(progress)
    progress.end("ready")
    progress.begin("Voice", f"encoding {source.path.name}")
    version = wait_encoded(newest_version(voice).pk, worker, progress)
    for other in others:
        wait_encoded(newest_version(other).pk, worker, progress)
    runs = _encoder_runs(version, started_at)
    how = "encoded" if runs else "the codes of an earlier run are reused"
    names = ", ".join([source.voice_name, *(other.name for other in others)])
    progress.end(f"{names} ready, {how}")

    progress.begin("Rendering", f"{len(text)} characters")
    submitted = submit_text(text, voice, owner=user, audio_format=FORMAT)
    job = wait_ended(submitted.pk, worker, progress)
    path = settings.DATA_DIR / "out" / f"{source.voice_name.replace('/', '_')}.{FORMAT}"
    save_audio(job, path)
    progress.end(summary(job))
    seconds = job.exports.aggregate(seconds=Sum("duration_seconds"))["seconds"] or 0.0
    return DemoResult(path, seconds, _encoder_runs(version, started_at), voice.name)


def _encoder_runs(version: VoiceVersion, since: dt.datetime) -> int:
    """Count the clips of a version that were encoded since then."""
    return (
        ClipCodes.objects.filter(clip__uses__version=version, encoded_at__gte=since)
        .distinct()
        .count()
    )
