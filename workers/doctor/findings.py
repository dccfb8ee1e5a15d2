"""What one look found, and how the looks are run so that none of them can break the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]
Check = Callable[[], "Finding"]


@dataclass(frozen=True)
class Finding:
    """One line of the report; `remedy` says what to do about a warning or a failure."""

    level: Level
    name: str
    text: str
    remedy: str = ""

    def line(self) -> str:
        """Return the finding as a line for people."""
        remedy = f"  -> {self.remedy}" if self.remedy else ""
        return f"{self.level:<4}  {self.name:<10}  {self.text}{remedy}"


def run_checks(checks: Iterable[tuple[str, Check]]) -> Iterator[Finding]:
    """Yield what each check finds; one that breaks is a failure of what it looked at."""
    for name, check in checks:
        try:
            yield check()
        except Exception as error:  # whatever is broken here must not hide the other findings
            yield Finding("fail", name, f"{type(error).__name__}: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), "no text")
