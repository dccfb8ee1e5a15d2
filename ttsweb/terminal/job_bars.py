"""Show on a terminal how far jobs are: segments, speed, time left; nowhere else anything."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TextIO

from ttsweb.client import JOB_FINAL, Job
from ttsweb.terminal.bars import Bars, left_in_words, told_column

if TYPE_CHECKING:
    from rich.progress import Task, TaskID

BARS_SHOWN = 10  # more of them would scroll
LABEL_WIDTH = 28


class JobBars(Bars):
    """A bar for each job that is being rendered, and one over all where there are several."""

    def __init__(self, stream: TextIO, num_jobs: int) -> None:
        """Draw on `stream`, if that is a terminal."""
        from rich.progress import MofNCompleteColumn

        super().__init__(stream, MofNCompleteColumn(), told_column("speed"), told_column("left"))
        self._tasks: dict[str, TaskID] = {}
        self._speeds: dict[str, Speed] = {}
        self._all = (
            self._progress.add_task("all", total=num_jobs, speed="jobs", left="")
            if num_jobs > 1
            else None
        )

    def show(self, label: str, job: Job) -> None:
        """Draw how far a job is; one that has ended leaves its place to another."""
        if not self.is_drawn:
            return
        if job["status"] in JOB_FINAL:
            self._remove(job["id"])
            return
        speed = self._speeds.setdefault(job["id"], Speed())
        if job["id"] not in self._tasks:
            if len(self._tasks) >= BARS_SHOWN:
                return
            self._tasks[job["id"]] = self._progress.add_task(
                label[-LABEL_WIDTH:], speed="", left=""
            )
        self._progress.update(
            self._tasks[job["id"]],
            completed=job["segments_done"],
            total=job["segments_total"] or None,
            speed=speed.told(job),
            left="" if job["status"] == "queued" else left_in_words(job["eta_seconds"]),
        )

    def end(self, label: str, text: str) -> None:
        """Say what has become of a job; it is done with."""
        if self._all is not None:
            self._progress.advance(self._all)
        if self.is_drawn:
            self._progress.console.print(f"{label[-LABEL_WIDTH:]}  {text}", soft_wrap=True)

    @property
    def tasks(self) -> list[Task]:
        """Return the bars that are drawn."""
        return self._progress.tasks

    def _add(self, label: str, *, total: int | None = None, speed: str = "") -> TaskID:
        return self._progress.add_task(label, total=total, speed=speed, left="")

    def _remove(self, job_id: str) -> None:
        task = self._tasks.pop(job_id, None)
        if task is not None:
            self._progress.remove_task(task)


class Speed:
    """How many times faster than its playing time a job is rendered, since it was first seen."""

    def __init__(self) -> None:
        self._began: tuple[float, float] | None = None  # clock and seconds of audio

    def told(self, job: Job) -> str:
        """Return the speed in words, or where the job waits."""
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
