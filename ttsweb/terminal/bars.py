"""Draw progress bars on a terminal and leave it clean; on anything else draw nothing."""

from __future__ import annotations

import datetime as dt
import math
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from rich.progress import ProgressColumn, TextColumn

BAR_WIDTH = 24


class Bars:
    """What all displays of progress share: a spinner, a name, a bar, and columns of their own."""

    def __init__(self, stream: TextIO, *columns: ProgressColumn) -> None:
        """Draw on `stream`, if that is a terminal."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

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


def left_in_words(seconds: float | None) -> str:
    """Say how long something still takes, as the server expects it."""
    if seconds is None:
        return "estimating the time left"
    return f"about {dt.timedelta(seconds=math.ceil(seconds))} left"


def told_column(name: str = "told") -> TextColumn:
    """Return a column that shows a task's field of this name as it is."""
    from rich.progress import TextColumn

    return TextColumn(f"{{task.fields[{name}]}}", markup=False)
