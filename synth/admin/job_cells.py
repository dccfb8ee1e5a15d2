"""Write what the admin's pages show of a job: badge, bar, words, players, options."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString

from synth.api.jobs.serializers import has_audio, progress_of
from synth.jobs.eta import WITHOUT_ETA, etas, hours, real_time_factor
from synth.jobs.queue_places import queue_positions
from synth.models import RenderJob
from synth.options.job_options import OPTIONS, Option, Value
from synth.transitions import UNFINISHED
from ttsweb.counted import counted

# The names of our badges' colours; any other state is blue.
BADGES = {"running": "encoding", "succeeded": "ready", "partial": "encoding", "failed": "failed"}


def look_up(jobs: Sequence[Any]) -> None:
    """Set on jobs where they stand in the queue and when they are done, by a few queries."""
    places, left = queue_positions(jobs), etas(jobs)
    for job in jobs:
        job.place, job.seconds_left = places.get(job.pk), left.get(job.pk)


def words_of(job: Any) -> str:
    """Return how far a job is, and how long it still takes."""
    if not hasattr(job, "place"):
        look_up([job])
    total = job.segments_total
    words = [f"{job.segments_done} of {counted(total, 'segment')}"]
    if job.status not in UNFINISHED:
        factor = real_time_factor(job)
        return " · ".join(words if factor is None else [*words, f"{factor:.1f}x real time"])
    if job.place is not None:
        words.insert(0, f"position {job.place}")
    if job.cancel_requested:
        words.append("stopping")
    elif job.paused_at is not None:
        words.append("paused")
    elif job.seconds_left is not None:
        words.append(f"about {hours(job.seconds_left)} left")
    elif job.status == RenderJob.Status.RUNNING:
        words.append(WITHOUT_ETA)
    return " · ".join(words)


def row_cell(template: str, job: RenderJob) -> SafeString:
    """Return a cell of a list that keeps itself up to date."""
    return SafeString(render_to_string(f"synth/{template}.html", cell_context(job)))


def cell_context(job: RenderJob) -> dict[str, Any]:
    """Return what the templates of the cells and of the job's page need."""
    progress = progress_of(job)
    return {
        "job": job,
        "colour": BADGES.get(job.status, "pending"),
        "is_open": job.status in UNFINISHED,
        "words": words_of(job),
        "url": reverse("job-audio", args=[job.pk]) if has_audio(job) else "",
        "short_id": str(job.pk)[:8],
        "progress": f"{progress:.3f}",
        "percent": round(100 * progress),
    }


def options_of(job: RenderJob) -> str:
    """Return what was asked for beside the usual."""
    asked = {one.listed: _words(one, job) for one in OPTIONS.values() if one.listed}
    asked["live"] = "yes" if job.live_requested_at else ""
    asked["deleted at"] = _words_of_time(job.expires_at)
    return " · ".join(f"{name} {words}" for name, words in asked.items() if words) or "-"


def _words(one: Option, job: RenderJob) -> str:
    """Return the value of an option in words; empty where it is the usual one."""
    value = getattr(job, one.column)
    if value == one.default or value in (None, [], {}):
        return ""
    if one.value == Value.PAUSES:
        return ", ".join(f"{name} {pause} ms" for name, pause in value.items())
    if one.value == Value.NAMES:
        return ", ".join(map(str, value))
    if one.value == Value.MOMENT:
        return _words_of_time(value)
    if one.value == Value.SWITCH:
        return "yes"
    if one.value == Value.ENTRIES:
        return str(len(value))
    return f"{value:g}{one.unit}" if isinstance(value, float) else f"{value}{one.unit}"


def _words_of_time(moment: dt.datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC" if moment else ""
