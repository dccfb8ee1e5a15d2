"""Show on a terminal how far a batch is: items that have ended, time left; elsewhere nothing."""

from __future__ import annotations

from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)

from ttsweb.client import JOB_FINAL
from ttsweb.client_batches import Batch


class BatchBar:
    """One bar over the items of a batch."""

    def __init__(self, stream: TextIO) -> None:
        """Draw on `stream`, if that is a terminal."""
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[audio]}", markup=False),
            TimeRemainingColumn(compact=True),
            console=Console(file=stream, highlight=False, markup=False, emoji=False),
            disable=not stream.isatty(),
            transient=True,
        )
        self._task = self._progress.add_task("items", total=None, audio="")

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

    def show(self, batch: Batch) -> None:
        """Draw how far a batch is."""
        failed = batch["counts"]["failed"]
        told = f"{batch['audio_seconds']:.0f} s of audio" + (f", {failed} failed" if failed else "")
        self._progress.update(
            self._task,
            description="zip" if ended(batch) == batch["items_total"] else "items",
            completed=ended(batch),
            total=batch["items_total"],
            audio=told,
        )


def ended(batch: Batch) -> int:
    """Return how many items have ended."""
    return sum(batch["counts"][status] for status in JOB_FINAL)
