"""Draw a book's report: loudness, peak and floor of each chapter as an SVG picture."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape, quoteattr

from synth.bookshelf.files.names import safe_name
from ttsweb.counted import counted

_LOW, _HIGH = -80.0, 0.0  # dB, what the axis shows
_HEIGHT, _LEFT, _TOP, _BOTTOM = 240, 44, 28, 40
_SERIES = (
    ("loudness_lufs", "Loudness (LUFS)", "#2b6cb0"),
    ("true_peak_dbtp", "Peak (dBTP)", "#b7791f"),
    ("floor_dbfs", "Noise floor (dBFS)", "#4a5568"),
)
_BAR = 8


def report_plot(report: dict[str, Any]) -> str:
    """Return the bars of a report of `book_report`; a failed chapter's number is red and marked."""
    rows = report["chapters"]
    step = 3 * _BAR + 8
    width = _LEFT + max(10, len(rows)) * step + 12
    height = _TOP + _HEIGHT + _BOTTOM
    title = f"Levels of {counted(len(rows), 'chapter')}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label={quoteattr(title)} '
        f'width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for place, (_, name, colour) in enumerate(_SERIES):
        x = _LEFT + place * 105
        parts.append(f'<rect x="{x}" y="8" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 14}" y="17">{name}</text>')
    for level in range(int(_LOW), 1, 20):
        y = _y(level)
        parts.append(f'<line x1="{_LEFT}" x2="{width}" y1="{y}" y2="{y}" stroke="#e2e8f0"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{level}</text>')
    parts += _limits(report["mastering"], width)
    for place, row in enumerate(rows):
        parts.append(_bars(row, _LEFT + place * step + 4))
    return "\n".join([*parts, "</svg>\n"])


def _limits(mastering: dict[str, Any], width: int) -> list[str]:
    found = []
    for name in ("target_lufs", "target_rms_dbfs", "peak_limit_dbtp", "floor_limit_dbfs"):
        if mastering[name] is not None:
            y = _y(mastering[name])
            found.append(
                f'<line x1="{_LEFT}" x2="{width}" y1="{y}" y2="{y}" stroke="#c53030" '
                f'stroke-dasharray="4 3"><title>{name} {mastering[name]:g}</title></line>'
            )
    return found


def _bars(row: dict[str, Any], left: int) -> str:
    """Return a chapter's three bars with its number below; its name and values are a tooltip."""
    name = safe_name(str(row["title"]), "Chapter")
    values = [(label, row[key], colour) for key, label, colour in _SERIES]
    said = ", ".join(f"{label} {'none' if value is None else value}" for label, value, _ in values)
    verdict = "passed" if row["passed"] else "failed"
    tooltip = escape(f"{row['index'] + 1} {name}: {said}; {verdict}")
    parts = [f"<g><title>{tooltip}</title>"]
    for place, (_, value, colour) in enumerate(values):
        if value is not None:
            y = _y(value)
            x, height = left + place * _BAR, _TOP + _HEIGHT - y
            parts.append(
                f'<rect x="{x}" y="{y}" width="{_BAR - 1}" height="{height:.1f}" fill="{colour}"/>'
            )
    colour, mark = ("#1a202c", "") if row["passed"] else ("#c53030", "!")
    parts.append(
        f'<text x="{left + 12}" y="{_TOP + _HEIGHT + 16}" text-anchor="middle" fill="{colour}">'
        f"{row['index'] + 1}{mark}</text></g>"
    )
    return "".join(parts)


def _y(level: float) -> float:
    held = min(_HIGH, max(_LOW, level))
    return round(_TOP + (_HIGH - held) / (_HIGH - _LOW) * _HEIGHT, 1)
