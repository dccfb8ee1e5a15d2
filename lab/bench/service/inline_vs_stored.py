"""Compare requests that carry their voice's clip with requests that name a stored voice.

They go over HTTP to a real site and worker that belong to the benchmark, one after the other; each
is timed from its first byte to the last byte of its finished file. `engine_first_audio_seconds` is
the engine's own part, measured in another process without queue and HTTP: from having the clip
(inline) or its codes (stored) to the first chunk of `Engine.stream`.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings

from lab.bench.machine import make_row, run_facts
from lab.bench.report import Options, Progress, Report
from lab.bench.service.e2e import chosen_checkpoint, service_settings
from lab.bench.service.own_service import own_service
from synth.engine.loading.engine_config import resolve_device

COLUMNS = (
    "way",
    "clip_seconds",
    "requests",
    "encoder_runs",
    "request_bytes",
    "audio_seconds",
    "audio_seconds_low",
    "audio_seconds_high",
    "engine_first_audio_seconds",
)
_WHY_NULL = dict.fromkeys(
    ("frames_per_second", "ratio_to_baseline", "ratio_to_roofline"),
    "a request is measured in seconds",
)


def run(options: Options, progress: Progress) -> Report:
    """Send the requests.

    Raises:
        StepError: the database is in use, or a process or a request failed.
    """
    checkpoint = chosen_checkpoint(options, progress)
    plan = {"requests": options["requests"], "seconds": options["seconds"]}
    with own_service(**service_settings(options, checkpoint)) as service:
        found: list[dict[str, Any]] = service.run(
            "lab.bench.service.inline_requests", plan, progress
        )
    facts = run_facts(
        resolve_device(options["device"] or settings.DEVICE), seed=0, preset=options["preset"]
    )
    facts |= {
        "threads": options["threads"] or 1,
        "checkpoint": checkpoint.name,
        "requests": options["requests"],
        "time_to_audio": "from a request to the last byte of its finished file",
        "engine_first_audio": "from a clip (inline) or its codes (stored) to the first chunk",
    }
    common = {"batch": 1}
    rows = [make_row(facts, common | row, why_null=_WHY_NULL) for row in found]
    return Report("inline-vs-stored", facts, rows, COLUMNS)
