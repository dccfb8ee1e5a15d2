"""Measure how soon speech is heard: from a request to the first and to the last byte of its answer.

Requests go to `POST /v1/audio/speech` of a real site and worker that belong to the benchmark, one
after the other and in turns, each with ten sentences that were never spoken before. `ratio` is the
time to the first byte as a share of that to the last one; its median has to be 0.25 at most. What
was received is decoded as it comes over a line; `decode_warnings` is what the decoder says of it.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings

from lab.bench.machine import make_row, run_facts
from lab.bench.report import Options, Progress, Report
from lab.bench.service.e2e import chosen_checkpoint, service_settings
from lab.bench.service.own_service import own_service
from synth.engine.loading.engine_config import resolve_device

MOST_RATIO = 0.25
COLUMNS = (
    "way",
    "rounds",
    "first_byte_seconds",
    "last_byte_seconds",
    "ratio",
    "ratio_high",
    "is_reached",
    "audio_seconds",
    "num_warnings",
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
    with own_service(**service_settings(options, checkpoint)) as service:
        plan = {"rounds": options["rounds"]}
        found: list[dict[str, Any]] = service.run(
            "lab.bench.service.first_byte_requests", plan, progress
        )
    device = resolve_device(options["device"] or settings.DEVICE)
    facts = run_facts(device, seed=0, preset=options["preset"]) | {
        "threads": options["threads"] or 1,
        "checkpoint": checkpoint.name,
        "most_ratio": MOST_RATIO,
        "is_reached": all(row["ratio"] <= MOST_RATIO for row in found),
    }
    rows = []
    for row in found:
        told = {"is_reached": row["ratio"] <= MOST_RATIO, "batch": 1}
        told["num_warnings"] = len(row["decode_warnings"])
        rows.append(make_row(facts, told | row, why_null=_WHY_NULL))
    return Report("first-byte", facts, rows, COLUMNS)
