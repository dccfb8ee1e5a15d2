"""Decide from a stage's last losses whether what it made is good enough to build on."""

from __future__ import annotations

from lab.training.run_folder import RunFolder

# Stage -> (loss, the most it may be at the end). Beyond these the round trip loses words.
_LIMITS = {
    "encoder": (("lost", 0.45), ("voice", 0.3)),
    "decoder": (("mel", 0.26), ("wave", 0.70)),
    "lm": (("semantic", 1.3), ("attention", 0.8)),
}
_ROWS = 4  # of the losses' end that are averaged


def missed_gates(run: RunFolder, stage: str) -> list[str]:
    """Return a sentence for every limit that a stage's losses have not come under."""
    rows = run.read_losses(stage)[-_ROWS:]
    if stage not in _LIMITS:
        return []
    if not rows:
        return [f"{stage} has not been trained"]
    missed = []
    for name, limit in _LIMITS[stage]:
        value = sum(row[name] for row in rows) / len(rows)
        if not value <= limit:
            missed.append(f"{stage}: {name} is {value:.3f} and should be at most {limit}")
    return missed
