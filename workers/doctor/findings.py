"""What one look found, and how the looks are run so that none of them can break the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["ok", "warn", "fail"]
Check = Callable[[], "Finding"]


@dataclass(frozen=True)
class Finding:
    """One line of the report; `remedy` says what to do about a warning or a failure.

    `rows` are a table's rows for programs, `table` the same as lines for people.
    """

    level: Level
    name: str
    text: str
    remedy: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    table: tuple[str, ...] = ()

    def line(self) -> str:
        """Return the finding as a line for people, with its table below where it has one."""
        remedy = f"  -> {self.remedy}" if self.remedy else ""
        first = f"{self.level:<4}  {self.name:<10}  {self.text}{remedy}"
        return "\n".join([first, *(f"{'':<18}{row}" for row in self.table)])

    def as_json(self) -> dict[str, Any]:
        """Return what programs read; `rows` only where there are any."""
        found: dict[str, Any] = {
            "level": self.level,
            "name": self.name,
            "text": self.text,
            "remedy": self.remedy,
        }
        return found | ({"rows": self.rows} if self.rows else {})


def run_checks(checks: Iterable[tuple[str, Check]]) -> Iterator[Finding]:
    """Yield what each check finds; one that breaks is a failure of what it looked at."""
    for name, check in checks:
        try:
            yield check()
        except Exception as error:  # whatever is broken here must not hide the other findings
            yield Finding("fail", name, f"{type(error).__name__}: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), "no text")
