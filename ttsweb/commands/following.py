"""Follow jobs to their files; what was not reached when Ctrl-C came goes on without us."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttsweb.client import (
    JOB_FINAL,
    JOB_WITH_AUDIO,
    ApiError,
    Client,
    ClientError,
    ConflictError,
    DownloadError,
    Job,
    NotFoundError,
    Segment,
)
from ttsweb.commands.errors import signals_held
from ttsweb.terminal.bars import JobBars

POLL_SECONDS = 1.0
IDS_PER_REQUEST = 100


@dataclass
class Followed:
    """A job on its way to a file.

    Attributes:
        is_closed: its end was reached; `error` then says why there is no whole file.
    """

    label: str
    job: Job
    target: Path
    is_closed: bool = False
    is_written: bool = False
    error: tuple[str, str] | None = None

    @property
    def come_back(self) -> str:
        """The line that fetches the file later."""
        return f"./tts jobs download {self.job['id']} --follow -o {shlex.quote(str(self.target))}"

    def as_object(self) -> dict[str, Any]:
        """Return what JSON says of it."""
        found: dict[str, Any] = {
            "job": self.job["id"],
            "status": self.job["status"],
            "audio_path": str(self.target.resolve()) if self.is_written else None,
            "audio_seconds": round(self.job["audio_seconds"], 3),
        }
        if self.error is not None:
            found["error"] = {"code": self.error[0], "message": self.error[1]}
        return found


def follow(client: Client, followed: Sequence[Followed], bars: JobBars) -> None:
    """Wait for jobs to end, and write the file of each as soon as it is there.

    Raises:
        ClientError, OSError: the server is away, or a file cannot be written.
    """
    waiting = {item.job["id"]: item for item in followed if not item.is_closed}
    while waiting:
        for job_id, job in _round(client, list(waiting)):
            item = waiting[job_id]
            if job is None:
                item.error = ("job_deleted", "The job was deleted while it was rendered.")
            else:
                item.job = job
                bars.show(item.label, job)
                if job["status"] not in JOB_FINAL:
                    continue
                _fetch(client, item)
            item.is_closed = True
            del waiting[job_id]
            bars.end(item.label, outcome(item))


def submit(
    client: Client,
    text: str,
    voice: str | Mapping[int, str],
    *,
    tell: Callable[[str], Any],
    keep: Callable[[Job], Any],
    **options: Any,
) -> None:
    """Queue a text; wait for voices that were never encoded yet, name the voices there are.

    Args:
        voice: id or name of one that speaks all, or of several by their speakers' numbers.
        tell: takes a line that says what is waited for.
        keep: takes the job. A signal that comes between the request and its answer waits until it
            was called, so that no job is made that the command does not know of.
        options: those of `client_types.JobOptions`.

    Raises:
        ClientError: what the server answered; VoiceFailedError.
    """
    if isinstance(voice, str):
        names, options = [voice], {"voice": voice, **options}
    else:
        names, options = list(dict.fromkeys(voice.values())), {"voices": voice, **options}
    waited: set[str] = set()
    while True:
        try:
            with signals_held():
                keep(client.jobs.create(text, **options))
            return
        except NotFoundError as error:
            if error.code == "voice_not_found":
                for name in names:
                    client.voices.find(name)  # its error names the others
            raise
        except ConflictError as error:
            if error.code != "voice_not_ready" or waited == set(names):
                raise
        for name in names:
            _wait_ready(client, name, tell)
            waited.add(name)


def _wait_ready(client: Client, name: str, tell: Callable[[str], Any]) -> None:
    found = client.voices.find(name)
    if found.get("status") != "ready":
        tell(f"The voice {name!r} is being encoded; waiting for it.")
    client.voices.wait_ready(found["id"])


def outcome(item: Followed) -> str:
    """Say what has become of a job."""
    if item.error is not None and not item.is_written:
        return f"{item.error[0]}: {item.error[1]}"
    lost = f"; {item.error[0]}: {item.error[1]}" if item.error is not None else ""
    return f"{summary(item.job)} -> {item.target}{lost}"


def summary(job: Job) -> str:
    """Say what was rendered and how fast, against its playing time."""
    text = f"{job['segments_done']}/{job['segments_total']} segments"
    if job["started_at"] is None or job["finished_at"] is None:
        return text
    began = dt.datetime.fromisoformat(job["started_at"])
    ended = dt.datetime.fromisoformat(job["finished_at"])
    elapsed = max((ended - began).total_seconds(), 0.001)
    return f"{text}, {job['audio_seconds'] / elapsed:.1f}x real time"


def job_error(client: Client, job: Job) -> tuple[str, str] | None:
    """Return code and sentence of what kept a job from being whole; None when it is whole."""
    if job["status"] == "succeeded":
        return None
    if job["error_code"]:
        return job["error_code"], job["error_message"]
    segment = _first_failed(client, job)
    if segment is not None:
        where = f"segment {segment['index']}: {segment['error_message']}"
        return segment["error_code"], where
    return f"job_{job['status']}", f"The job {job['id']} is {job['status']}."


def _first_failed(client: Client, job: Job) -> Segment | None:
    if not job["segments_failed"]:
        return None
    try:
        segments = client.jobs.segments(job["id"])
        return next((found for found in segments if found["status"] == "failed"), None)
    except ClientError:
        return None


def _fetch(client: Client, item: Followed) -> None:
    item.error = job_error(client, item.job)
    if item.job["status"] not in JOB_WITH_AUDIO:
        return
    try:
        client.jobs.download(item.job["id"], item.target)
        item.is_written = True
    except (ApiError, DownloadError) as error:  # deleted meanwhile, or it came only in part
        item.error = (error.code, str(error))


def _round(client: Client, job_ids: Sequence[str]) -> Iterator[tuple[str, Job | None]]:
    """Yield each job as it is now, None for one that is gone; takes about a second.

    The server keeps back the answer for the first; the others come in lists.
    """
    first, others = job_ids[0], job_ids[1:]
    try:
        yield first, client.jobs.poll(first, POLL_SECONDS)
    except NotFoundError:
        yield first, None
    for start in range(0, len(others), IDS_PER_REQUEST):
        for job in client.jobs.list(ids=others[start : start + IDS_PER_REQUEST]):
            yield job["id"], job
