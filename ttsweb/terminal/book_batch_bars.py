"""Show on a terminal how far a batch of books is, and each book that is at work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from ttsweb.client.book_batches import BookBatch, BookBatchEntry
from ttsweb.counted import counted
from ttsweb.terminal.bars import Bars, left_in_words, told_column
from ttsweb.terminal.plain_table import length, one_line

if TYPE_CHECKING:
    from rich.progress import TaskID

MOST_BARS = 12
_TITLE_CHARS = 32


class BookBatchBars(Bars):
    """A bar for the batch, and below it those of its books that are rendered now."""

    def __init__(self, stream: TextIO) -> None:
        """Draw on `stream`, if that is a terminal."""
        from rich.progress import TaskProgressColumn

        super().__init__(stream, TaskProgressColumn(), told_column())
        self._all = self._progress.add_task("books", total=1.0, told="")
        self._books: dict[int, TaskID] = {}

    def show(self, batch: BookBatch, at_work: Sequence[BookBatchEntry] = ()) -> None:
        """Draw how far a batch and its books are."""
        self._progress.update(
            self._all, completed=batch["progress"]["share"], told=told_of_batch(batch)
        )
        shown = {entry["index"]: entry for entry in at_work[:MOST_BARS]}
        for index in [one for one in self._books if one not in shown]:
            self._progress.remove_task(self._books.pop(index))
        for index, entry in shown.items():
            if index not in self._books:
                title = one_line(entry["title"], _TITLE_CHARS)
                self._books[index] = self._progress.add_task(f"  {title}", total=1.0, told="")
            progress = entry["progress"]
            self._progress.update(
                self._books[index],
                completed=progress["share"] if progress is not None else 0.0,
                told=told_of_entry(entry),
            )


def told_of_batch(batch: BookBatch) -> str:
    """Say how many books have ended, how much is rendered, how fast, and how long it takes."""
    progress = batch["progress"]
    told = [f"{progress['books_ended']}/{counted(progress['books_total'], 'book')}"]
    if batch["status"] not in ("running", "ended"):
        told.append(batch["status"].replace("_", " "))
    told.append(f"{length(progress['audio_seconds'])} of audio")
    if progress["real_time_factor"] is not None:
        told.append(f"{progress['real_time_factor']:.1f}x real time")
    if progress["takes_reused"]:
        told.append(f"{counted(progress['takes_reused'], 'take')} reused")
    if batch["counts"]["failed"]:
        told.append(f"{batch['counts']['failed']} failed")
    if progress["eta_seconds"] is not None:
        told.append(left_in_words(progress["eta_seconds"]))
    return ", ".join(told)


def told_of_entry(entry: BookBatchEntry) -> str:
    """Say how far a book is."""
    progress = entry["progress"]
    if progress is None:
        return entry["state"]
    told = [
        entry["state"],
        f"{progress['chapters_done']}/{counted(progress['chapters_total'], 'chapter')}",
        f"{progress['segments_done']}/{counted(progress['segments_total'], 'segment')}",
    ]
    if progress["eta_seconds"] is not None:
        told.append(left_in_words(progress["eta_seconds"]))
    return ", ".join(told)
