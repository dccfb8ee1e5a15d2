"""Train a stage for a budget of minutes, in as many sittings as it takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from lab.training.run_folder import RunFolder

SAVE_SECONDS = 60.0
_LOWEST_RATE = 0.02  # of the peak, at the end
_WARM_UP_STEPS = 50
_WIDTH, _HEIGHT, _MARGIN = 640, 150, 34


class Stage(Protocol):
    """Say what a stage trains and how; batches depend on the step alone, so a resumed run repeats.

    `name` is its file's; `network` holds all that is trained and saved.
    """

    name: str

    @property
    def network(self) -> nn.Module:
        """Return what is trained."""
        ...

    def losses(self, step: int, progress: float) -> Mapping[str, Tensor]:
        """Return the losses of one batch; `loss` is minimised, the others are shown.

        `progress` goes from 0 to 1 over the budget.
        """
        ...


@dataclass(frozen=True, slots=True)
class Budget:
    """Hold how long and how fast to learn; `sitting_minutes` ends this process's part.

    The rate stays at its peak for the share `held` of the budget.
    """

    minutes: float
    rate: float
    sitting_minutes: float = math.inf
    held: float = 0.3
    decay: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.98)
    clip: float = 1.0
    report_every: int = 25


def train(stage: Stage, run: RunFolder, budget: Budget, report: Callable[[str], None]) -> bool:
    """Train until the budget or this sitting is used up; return whether the budget is."""
    parameters = [p for p in stage.network.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(
        parameters, lr=budget.rate, betas=budget.betas, weight_decay=budget.decay
    )
    clock = _Clock(stage, run, optimiser, budget.report_every)
    clock.resume(report)
    total, began = budget.minutes * 60, time.monotonic()
    while clock.seconds < total:
        if time.monotonic() - began > budget.sitting_minutes * 60:
            clock.save()
            return False
        progress = clock.seconds / total
        for group in optimiser.param_groups:
            group["lr"] = budget.rate * rate_at(clock.step, progress, budget.held)
        started = time.monotonic()
        losses = stage.losses(clock.step, progress)
        optimiser.zero_grad(set_to_none=True)
        losses["loss"].backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(parameters, budget.clip)
        if bool(norm.isfinite()):  # one bad batch must not undo hours
            optimiser.step()
        clock.advance({**losses, "norm": norm}, time.monotonic() - started, report)
    clock.save()
    return True


def rate_at(step: int, progress: float, held: float) -> float:
    """Return the rate as a share of its peak: a warm-up, the peak, then half a cosine down."""
    warm = min(1.0, (step + 1) / _WARM_UP_STEPS)
    falling = max(0.0, progress - held) / (1 - held)
    return warm * (_LOWEST_RATE + (1 - _LOWEST_RATE) * 0.5 * (1 + math.cos(math.pi * falling)))


class _Clock:
    """Count steps and seconds over all sittings, keep the state on disk, and show the losses."""

    def __init__(
        self, stage: Stage, run: RunFolder, optimiser: torch.optim.Optimizer, report_every: int
    ) -> None:
        self._stage, self._run, self._optimiser = stage, run, optimiser
        self._report_every = report_every
        self.step, self.seconds = 0, 0.0
        self._sums: dict[str, float] = {}
        self._count, self._saved = 0, time.monotonic()

    def resume(self, report: Callable[[str], None]) -> None:
        if not self._run.has(f"{self._stage.name}-state"):
            return
        state = self._run.load(f"{self._stage.name}-state")
        self._stage.network.load_state_dict(state["network"])
        self._optimiser.load_state_dict(state["optimiser"])
        self.step, self.seconds = state["step"], state["seconds"]
        report(f"{self._stage.name}: continues from step {self.step}, {self.seconds:.0f} s")

    def save(self) -> None:
        state = {
            "network": self._stage.network.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
        }
        self._run.save(f"{self._stage.name}-state", state)
        self._saved = time.monotonic()

    def advance(
        self, values: Mapping[str, Tensor], seconds: float, report: Callable[[str], None]
    ) -> None:
        self.step, self.seconds, self._count = (
            self.step + 1,
            self.seconds + seconds,
            self._count + 1,
        )
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, 0.0) + float(value.detach())
        if self._count == self._report_every:
            means = {name: total / self._count for name, total in self._sums.items()}
            self._run.append_losses(
                self._stage.name, {"step": self.step, "seconds": self.seconds, **means}
            )
            shown = " ".join(f"{name} {value:.3f}" for name, value in means.items())
            report(f"{self._stage.name}: step {self.step}, {self.seconds:.0f} s, {shown}")
            self._sums, self._count = {}, 0
        if time.monotonic() - self._saved > SAVE_SECONDS:
            self.save()
            write_curves(self._run, self._stage.name)


def write_curves(run: RunFolder, stage: str) -> None:
    """Write `stage`.svg beside the stage's losses; nothing is written before two rows exist."""
    rows = run.read_losses(stage)
    if len(rows) < 2:
        return
    names = [name for name in rows[-1] if name not in ("step", "seconds")]
    panels = [_panel(rows, name, index * _HEIGHT) for index, name in enumerate(names)]
    size = f'width="{_WIDTH}" height="{_HEIGHT * len(names)}"'
    style = 'font-family="sans-serif" font-size="11" fill="none"'
    body = "\n".join(panels)
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n{body}\n</svg>\n'
    temporary = run.path / f"{stage}.svg.partial"
    temporary.write_text(svg, encoding="utf-8")
    temporary.replace(run.path / f"{stage}.svg")


def _panel(rows: list[dict[str, float]], name: str, top: int) -> str:
    points = [(row["seconds"], row[name]) for row in rows if name in row]
    low, high = min(value for _, value in points), max(value for _, value in points)
    last = max(points[-1][0], 1e-9)
    span = (high - low) or 1.0
    inner_width, inner_height = _WIDTH - 2 * _MARGIN, _HEIGHT - 2 * _MARGIN + 14
    line = " ".join(
        f"{_MARGIN + x / last * inner_width:.1f},"
        f"{top + _MARGIN + (high - y) / span * inner_height:.1f}"
        for x, y in points
    )
    text = (
        f"{name}: {points[0][1]:.4g} to {points[-1][1]:.4g}, lowest {low:.4g}, {last / 60:.1f} min"
    )
    frame = (
        f'<rect x="{_MARGIN}" y="{top + _MARGIN}" width="{inner_width}" '
        f'height="{inner_height}" stroke="#ccc"/>'
    )
    return (
        f'{frame}<polyline points="{line}" stroke="#06c" stroke-width="1.5"/>'
        f'<text x="{_MARGIN}" y="{top + _MARGIN - 8}" fill="#000">{text}</text>'
    )
