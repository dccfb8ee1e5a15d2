"""Keep what each step found in a file of its own, so that a run can be cut off and taken up again.

A record is a JSON object: `part`, `step`, `status`, `reason` where there is something to say,
`run` (which run wrote it), `seconds`, where it was found (`device`, `preset`, `commit`), and of a
finished step `rows`, `columns`, `figures` and `mismatches`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BEGUN = "begun"  # and not ended: the process was cut off, or is at it
DONE = "done"
MISMATCH = "mismatch"  # it ran, and what it compared is not equal or not near enough
FAILED = "failed"  # it raised, or took its process with it
NOT_MEASURED = "not measured"

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Records:
    """Hold the folder of a run's records."""

    folder: Path

    def read(self, part: str, step: str) -> Record | None:
        """Return a step's record, None where there is none that can be read."""
        return _read(self._path(part, step))

    def all(self) -> list[Record]:
        """Return every record of the folder, in the order of their names."""
        found = [_read(path) for path in sorted(self.folder.glob("*.json"))]
        return [record for record in found if record is not None]

    def write(self, record: Mapping[str, Any]) -> None:
        """Write a record over the step's earlier one; never half of it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(record["part"], record["step"])
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(_plain(record), indent=1) + "\n", encoding="utf-8")
        unfinished.replace(path)

    def begun(self, run: str) -> Record | None:
        """Return the record of the step that a run has begun and not ended."""
        for record in self.all():
            if record["run"] == run and record["status"] == BEGUN:
                return record
        return None

    def _path(self, part: str, step: str) -> Path:
        return self.folder / f"{part}.{step}.json"


def _read(path: Path) -> Record | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    is_record = isinstance(content, dict) and {"part", "step", "status", "run"} <= content.keys()
    return content if is_record else None


def _plain(value: Any) -> Any:
    """Return a value as JSON can say it: no NaN, no infinity, nothing but JSON's own kinds."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)
