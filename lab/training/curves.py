"""Draw a stage's losses as an SVG: one panel for each, over the seconds of training."""

from __future__ import annotations

from lab.training.run_folder import RunFolder

_WIDTH, _HEIGHT, _MARGIN = 640, 150, 34


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
