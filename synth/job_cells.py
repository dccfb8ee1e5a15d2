"""Write what the admin's pages show of a job: badge, bar, words, players, options."""

from __future__ import annotations

from typing import Any

from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString

from synth.models import RenderJob
from synth.serializers import file_name_of, has_audio, progress_of
from synth.transitions import UNFINISHED

# The names of our badges' colours; any other state is blue.
BADGES = {"running": "encoding", "succeeded": "ready", "partial": "encoding", "failed": "failed"}


def bar_of(job: RenderJob) -> dict[str, Any]:
    """Return what the template of the bar needs."""
    progress = progress_of(job)
    return {"progress": f"{progress:.3f}", "percent": round(100 * progress)}


def words_of(job: RenderJob) -> list[str]:
    """Return how far a job is; the page's script says the same of jobs that go on."""
    words = [f"{job.segments_done} of {job.segments_total}"]
    factor = real_time_factor(job)
    return words if factor is None else [*words, f"{factor:.1f}x real time"]


def real_time_factor(job: RenderJob) -> float | None:
    """Return seconds of audio per second from an ended job's start to its end."""
    if job.started_at is None or job.finished_at is None or not job.audio_seconds:
        return None
    seconds = (job.finished_at - job.started_at).total_seconds()
    return job.audio_seconds / seconds if seconds > 0 else None


def row_cell(template: str, job: RenderJob) -> SafeString:
    """Return a cell of the list that the page's script keeps up to date."""
    context = {
        "job": job,
        "colour": BADGES.get(job.status, "pending"),
        "words": " · ".join(words_of(job)),
        "url": reverse("job-audio", args=[job.pk]) if has_audio(job) else "",
        "short_id": str(job.pk)[:8],
    }
    return SafeString(render_to_string(f"synth/{template}.html", context | bar_of(job)))


def file_cell(job: RenderJob) -> SafeString:
    """Return what can be heard of a job: its file, or the audio of one that is not over."""
    url = reverse("job-audio", args=[job.pk])
    export = job.exports.filter(format=job.format).first() if has_audio(job) else None
    context = {
        "url": url if has_audio(job) else "",
        "live_url": f"{url}?live=1" if job.status in UNFINISHED and job.speed == 1 else "",
        "peaks": export.peaks if export else None,
        "short_id": str(job.pk)[:8],
        "filename": file_name_of(job),
    }
    return SafeString(render_to_string("synth/audio.html", context))


def options_of(job: RenderJob) -> str:
    """Return what was asked for beside the usual."""
    asked = {
        "language": job.language,
        "sample rate": job.sample_rate and f"{job.sample_rate} Hz",
        "bit rate": job.bit_rate and f"{job.bit_rate} bit/s",
        "loudness": job.loudness and f"{job.loudness:g} LUFS",
        "speed": "" if job.speed == 1 else f"{job.speed:g}",
        "pauses": ", ".join(f"{name} {pause} ms" for name, pause in job.pauses.items()),
        "lexicons": ", ".join(map(str, job.lexicons)),
        "lexicon entries": len(job.lexicon) or "",
        "normalised": "yes" if job.normalise else "",
        "further takes": "" if job.max_retakes is None else str(job.max_retakes),
        "live": "yes" if job.live_requested_at else "",
        "deadline": job.deadline_at and f"{job.deadline_at:%Y-%m-%d %H:%M} UTC",
        "deleted at": job.expires_at and f"{job.expires_at:%Y-%m-%d %H:%M} UTC",
        "webhook": job.webhook_url,
    }
    return " · ".join(f"{name} {value}" for name, value in asked.items() if value) or "-"
