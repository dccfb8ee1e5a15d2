"""Show on a terminal how far a batch is: items that have ended, time left; elsewhere nothing."""

from __future__ import annotations

from typing import TextIO

from ttsweb.client import JOB_FINAL
from ttsweb.client.batches import Batch
from ttsweb.terminal.bars import Bars, left_in_words, told_column


class BatchBar(Bars):
    """One bar over the items of a batch."""

    def __init__(self, stream: TextIO) -> None:
        """Draw on `stream`, if that is a terminal."""
        from rich.progress import MofNCompleteColumn

        super().__init__(stream, MofNCompleteColumn(), told_column("audio"), told_column("left"))
        self._task = self._progress.add_task("items", total=None, audio="", left="")

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
            left=left_in_words(batch["eta_seconds"]) if batch["status"] == "running" else "",
        )


def ended(batch: Batch) -> int:
    """Return how many items have ended."""
    return sum(batch["counts"][status] for status in JOB_FINAL)
