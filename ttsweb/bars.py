"""Draw progress bars on a terminal and leave it clean; on anything else draw nothing."""

from __future__ import annotations

from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn

BAR_WIDTH = 24


class Bars:
    """What all displays of progress share: a spinner, a name, a bar, and columns of their own."""

    def __init__(self, stream: TextIO, *columns: ProgressColumn) -> None:
        """Draw on `stream`, if that is a terminal."""
        self.is_drawn = stream.isatty()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=BAR_WIDTH),
            *columns,
            console=Console(file=stream, highlight=False, markup=False, emoji=False),
            disable=not self.is_drawn,
            transient=True,
        )

    def __enter__(self) -> Self:
        """Begin to draw."""
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the terminal clean for other output."""
        self._progress.stop()


def told_column(name: str = "told") -> TextColumn:
    """Return a column that shows a task's field of this name as it is."""
    return TextColumn(f"{{task.fields[{name}]}}", markup=False)
