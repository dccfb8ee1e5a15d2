"""Show on a terminal how far a book is: chapters, segments, speed, time left; elsewhere nothing."""

from __future__ import annotations

from typing import TextIO

from ttsweb.client.books import Book, BookProgress
from ttsweb.terminal.bars import Bars, left_in_words, told_column


class BookBars(Bars):
    """A bar for the chapters of a book and one for its segments."""

    def __init__(self, stream: TextIO) -> None:
        """Draw on `stream`, if that is a terminal."""
        from rich.progress import MofNCompleteColumn

        super().__init__(stream, MofNCompleteColumn(), told_column())
        self._chapters = self._progress.add_task("chapters", total=None, told="")
        self._segments = self._progress.add_task("segments", total=None, told="")

    def show(self, book: Book) -> None:
        """Draw how far a book is."""
        progress = book["progress"]
        if progress is None:
            self._progress.update(self._chapters, told=book["status"])
            return
        closed = progress["segments_done"] + progress["segments_failed"]
        self._progress.update(
            self._chapters,
            completed=progress["chapters_done"],
            total=progress["chapters_total"],
            told=book["status"],
        )
        self._progress.update(
            self._segments,
            completed=closed,
            total=progress["segments_total"],
            told=speed_of(progress, book["status"]),
        )


def speed_of(progress: BookProgress, status: str) -> str:
    """Say how much is rendered, how fast, what was there already, and how long it still takes."""
    told = [f"{progress['audio_seconds']:.0f} s of audio"]
    if progress["real_time_factor"] is not None:
        told.append(f"{progress['real_time_factor']:.1f}x real time")
    if progress["takes_reused"]:
        told.append(f"{progress['takes_reused']} reused")
    if progress["segments_failed"]:
        told.append(f"{progress['segments_failed']} failed")
    if status == "running":
        told.append(left_in_words(progress["eta_seconds"]))
    return ", ".join(told)
