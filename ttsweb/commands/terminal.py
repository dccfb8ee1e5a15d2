"""Show on a terminal how far a command is, and rows as tables; write plain lines elsewhere.

Progress bars leave the terminal clean. A table has columns of one width, and nothing in it that a
terminal would act on.
"""

from __future__ import annotations

import datetime as dt
import math
import shutil
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Self, TextIO

from ttsweb.client import JOB_FINAL, Job
from ttsweb.client.book_types import BatchProgress, Book, BookBatch, BookBatchEntry, BookProgress
from ttsweb.client.types import Batch
from ttsweb.refusals import counted

if TYPE_CHECKING:
    from rich.progress import TaskID


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    cells = [list(head), *([one_line(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for row in cells:
        line = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(line).rstrip()


def one_line(text: str, width: int = 60) -> str:
    """Return a text on one line, cut to a width, without characters that steer a terminal."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return plain if len(plain) <= width else f"{plain[: width - 1]}…"


def length(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


STEP_LABEL_WIDTH = 11
STEP_BAR_WIDTH = 20
_CLEAR_LINE = "\r\x1b[2K"


class Progress:
    """One line per step; on a terminal it is drawn again as the step goes on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._label = ""
        self._drawn = ""

    def begin(self, label: str, text: str) -> None:
        self._label, self._drawn = label, ""
        self._draw(text) if self._is_terminal else self._line(text)

    def update(self, text: str, *, done: int = 0, total: int = 0) -> None:
        if self._is_terminal:
            self._draw(f"{_bar(done, total)} {done}/{total}  {text}" if total else text)

    def end(self, text: str) -> None:
        if self._is_terminal:
            self._stream.write(_CLEAR_LINE)
        self._line(text)
        self._drawn = ""

    def leave(self) -> None:
        """Free the line for other output, when a step was broken off."""
        if self._is_terminal and self._drawn:
            self._stream.write("\n")
            self._stream.flush()
            self._drawn = ""

    def _draw(self, text: str) -> None:
        line = f"{self._label:<{STEP_LABEL_WIDTH}} {text}"[: shutil.get_terminal_size().columns - 1]
        if line != self._drawn:
            self._stream.write(f"{_CLEAR_LINE}{line}")
            self._stream.flush()
            self._drawn = line

    def _line(self, text: str) -> None:
        self._stream.write(f"{self._label:<{STEP_LABEL_WIDTH}} {text}\n")
        self._stream.flush()


def _bar(done: int, total: int) -> str:
    filled = STEP_BAR_WIDTH * min(done, total) // total
    return f"[{'#' * filled}{'.' * (STEP_BAR_WIDTH - filled)}]"


BAR_WIDTH = 24


class Bars:
    """What all displays of progress share: a spinner, a name, a bar, and fields of the tasks.

    Attributes:
        is_counted: a number of rows is shown, and not a share.
    """

    is_counted = True

    def __init__(self, stream: TextIO, *fields: str) -> None:
        from rich import progress
        from rich.console import Console

        shown: type[progress.ProgressColumn] = (
            progress.MofNCompleteColumn if self.is_counted else progress.TaskProgressColumn
        )
        texts = ("{task.description}", *(f"{{task.fields[{name}]}}" for name in fields))
        name, *columns = [progress.TextColumn(text, markup=False) for text in texts]
        self.is_drawn = stream.isatty()
        self._progress = progress.Progress(
            progress.SpinnerColumn(),
            name,
            progress.BarColumn(bar_width=BAR_WIDTH),
            shown(),
            *columns,
            console=Console(file=stream, highlight=False, markup=False, emoji=False),
            disable=not self.is_drawn,
            transient=True,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def left_in_words(seconds: float | None) -> str:
    if seconds is None:
        return "estimating the time left"
    return f"about {dt.timedelta(seconds=math.ceil(seconds))} left"


def left_of(one: Job | BookProgress) -> str:
    """Return how long a job or book that runs still takes, or what is done where nobody knows."""
    closed = one["segments_done"] + one["segments_failed"]
    is_rendered = one["eta_seconds"] is None and closed >= one["segments_total"]
    return "making the file" if is_rendered else left_in_words(one["eta_seconds"])


BARS_SHOWN = 10  # more of them would scroll
LABEL_WIDTH = 28


class JobBars(Bars):
    """A bar for each job that is being rendered, and one over all where there are several."""

    def __init__(self, stream: TextIO, num_jobs: int) -> None:
        super().__init__(stream, "speed", "left")
        self._tasks: dict[str, TaskID] = {}
        self._speeds: dict[str, Speed] = {}
        self._all: TaskID | None = None
        if num_jobs > 1:
            self._all = self._progress.add_task("all", total=num_jobs, speed="jobs", left="")

    def show(self, label: str, job: Job) -> None:
        """Draw how far a job is; one that has ended leaves its place to another."""
        if not self.is_drawn:
            return
        job_id = job["id"]
        if job["status"] in JOB_FINAL:
            if job_id in self._tasks:
                self._progress.remove_task(self._tasks.pop(job_id))
            return
        speed = self._speeds.setdefault(job_id, Speed())
        if job_id not in self._tasks:
            if len(self._tasks) >= BARS_SHOWN:
                return
            label = label[-LABEL_WIDTH:]
            self._tasks[job_id] = self._progress.add_task(label, speed="", left="")
        self._progress.update(
            self._tasks[job_id],
            completed=job["segments_done"],
            total=job["segments_total"] or None,
            speed=speed.text(job),
            left="" if job["status"] == "queued" else left_of(job),
        )

    def end(self, label: str, text: str) -> None:
        if self._all is not None:
            self._progress.advance(self._all)
        if self.is_drawn:
            self._progress.console.print(f"{label[-LABEL_WIDTH:]}  {text}", soft_wrap=True)


class Speed:
    """How many times faster than its playing time a job is rendered, since it was first seen."""

    def __init__(self) -> None:
        self._began: tuple[float, float] | None = None  # clock and seconds of audio

    def text(self, job: Job) -> str:
        if job["status"] == "queued":
            position = job["queue_position"]
            return f"queued, number {position}" if position else "queued"
        now = time.monotonic()
        if self._began is None:
            self._began = (now, job["audio_seconds"])
            return "rendering"
        elapsed = now - self._began[0]
        seconds = job["audio_seconds"] - self._began[1]
        if elapsed <= 0 or seconds <= 0:
            return "rendering"
        return f"{seconds / elapsed:.1f}x real time"


class BookBars(Bars):
    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream, "text")
        self._chapters = self._progress.add_task("chapters", total=None, text="")
        self._segments = self._progress.add_task("segments", total=None, text="")

    def show(self, book: Book) -> None:
        progress, status = book["progress"], book["status"]
        self._progress.update(self._chapters, text=status)
        if progress is None:
            return
        done, total = progress["chapters_done"], progress["chapters_total"]
        self._progress.update(self._chapters, completed=done, total=total)
        closed = progress["segments_done"] + progress["segments_failed"]
        total, text = progress["segments_total"], speed_of(progress, status)
        self._progress.update(self._segments, completed=closed, total=total, text=text)


def speed_of(progress: BookProgress, status: str) -> str:
    text = [f"{progress['audio_seconds']:.0f} s of audio", *_factor(progress)]
    if progress["takes_reused"]:
        text.append(f"{progress['takes_reused']} reused")
    if progress["segments_failed"]:
        text.append(f"{progress['segments_failed']} failed")
    if status == "running":
        text.append(left_of(progress))
    return ", ".join(text)


def _factor(progress: BookProgress | BatchProgress) -> list[str]:
    """Return how fast it goes in words; none where that is not known."""
    factor = progress["real_time_factor"]
    return [] if factor is None else [f"{factor:.1f}x real time"]


class BatchBar(Bars):
    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream, "audio", "left")
        self._task = self._progress.add_task("items", total=None, audio="", left="")

    def show(self, batch: Batch) -> None:
        failed = batch["counts"]["failed"]
        text = f"{batch['audio_seconds']:.0f} s of audio" + (f", {failed} failed" if failed else "")
        self._progress.update(
            self._task,
            description="zip" if ended(batch) == batch["items_total"] else "items",
            completed=ended(batch),
            total=batch["items_total"],
            audio=text,
            left=left_in_words(batch["eta_seconds"]) if batch["status"] == "running" else "",
        )


def ended(batch: Batch) -> int:
    return sum(batch["counts"][status] for status in JOB_FINAL)


MOST_BARS = 12
_TITLE_CHARS = 32


class BookBatchBars(Bars):
    """A bar for the batch, and below it those of its books that are rendered now."""

    is_counted = False

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream, "text")
        self._all = self._progress.add_task("books", total=1.0, text="")
        self._books: dict[int, TaskID] = {}

    def show(self, batch: BookBatch, at_work: Sequence[BookBatchEntry] = ()) -> None:
        self._progress.update(
            self._all, completed=batch["progress"]["share"], text=describe_batch(batch)
        )
        shown = {entry["index"]: entry for entry in at_work[:MOST_BARS]}
        for index in [one for one in self._books if one not in shown]:
            self._progress.remove_task(self._books.pop(index))
        for index, entry in shown.items():
            if index not in self._books:
                title = one_line(entry["title"], _TITLE_CHARS)
                self._books[index] = self._progress.add_task(f"  {title}", total=1.0, text="")
            progress = entry["progress"]
            self._progress.update(
                self._books[index],
                completed=progress["share"] if progress is not None else 0.0,
                text=describe_entry(entry),
            )


def describe_batch(batch: BookBatch) -> str:
    progress = batch["progress"]
    text = [f"{progress['books_ended']}/{counted(progress['books_total'], 'book')}"]
    if batch["status"] not in ("running", "ended"):
        text.append(batch["status"].replace("_", " "))
    text += [f"{length(progress['audio_seconds'])} of audio", *_factor(progress)]
    if progress["takes_reused"]:
        text.append(f"{counted(progress['takes_reused'], 'take')} reused")
    if batch["counts"]["failed"]:
        text.append(f"{batch['counts']['failed']} failed")
    if progress["eta_seconds"] is not None:
        text.append(left_in_words(progress["eta_seconds"]))
    return ", ".join(text)


def describe_entry(entry: BookBatchEntry) -> str:
    progress = entry["progress"]
    if progress is None:
        return entry["state"]
    text = [
        entry["state"],
        f"{progress['chapters_done']}/{counted(progress['chapters_total'], 'chapter')}",
        f"{progress['segments_done']}/{counted(progress['segments_total'], 'segment')}",
    ]
    if progress["eta_seconds"] is not None:
        text.append(left_in_words(progress["eta_seconds"]))
    return ", ".join(text)
