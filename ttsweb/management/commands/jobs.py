"""List, show, cancel, retry and download jobs over the API."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from itertools import islice
from pathlib import Path
from typing import Any

from synth.formats import FORMATS
from ttsweb.client import JOB_FINAL, Client, Job
from ttsweb.commands.errors import StepError
from ttsweb.commands.following import Followed, job_error, outcome, summary
from ttsweb.commands.remote_command import RemoteCommand
from ttsweb.terminal.plain_table import one_line, table

LISTED = 20


class Command(RemoteCommand):
    """`jobs ls|show|cancel|retry|download`."""

    help = "List, show, cancel, retry and download jobs of the server at TTS_URL."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare one parser for each action."""
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        ls = actions.add_parser("ls", help="list jobs, newest first")
        ls.add_argument("--status", help="one or more statuses, separated by commas")
        ls.add_argument("--voice", help="name or id of a voice")
        ls.add_argument("--limit", type=count, default=LISTED, help=f"how many at most ({LISTED})")
        show = actions.add_parser("show", help="show a job")
        show.add_argument("id")
        show.add_argument("--segments", action="store_true", help="also show all its segments")
        cancel = actions.add_parser("cancel", help="cancel jobs")
        cancel.add_argument("ids", nargs="+", metavar="id")
        retry = actions.add_parser("retry", help="queue failed and cancelled segments again")
        retry.add_argument("ids", nargs="+", metavar="id")
        download = actions.add_parser("download", help="download a job's file")
        download.add_argument("id")
        download.add_argument("-o", "--output", type=Path, help="file or folder to write to")
        download.add_argument("--follow", action="store_true", help="wait until the job has ended")
        for action in (ls, show, cancel, retry, download):
            action.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, client: Client, chosen: Namespace) -> None:
        """Do the action."""
        actions = {
            "ls": self._list,
            "show": self._show,
            "cancel": self._cancel,
            "retry": self._retry,
            "download": self._download,
        }
        actions[chosen.action](client, chosen)

    def _list(self, client: Client, chosen: Namespace) -> None:
        found = client.jobs.list(status=chosen.status, voice=chosen.voice)
        jobs = list(islice(found, chosen.limit))
        if chosen.json:
            self.tell({"jobs": jobs})
            return
        rows = [
            (job["id"], job["status"], _done(job), _moment(job["created_at"]), _voices(job),
             job["text_start"])
            for job in jobs
        ]  # fmt: skip
        for line in table(("id", "status", "segments", "made at", "voice", "text"), rows):
            self.stdout.write(line)

    def _show(self, client: Client, chosen: Namespace) -> None:
        job = client.jobs.get(chosen.id)
        segments = list(client.jobs.segments(chosen.id)) if chosen.segments else None
        if chosen.json:
            self.tell(job if segments is None else {**job, "segments": segments})
            return
        for name, value in _described(job):
            self.stdout.write(f"{name:<12}{one_line(str(value), 200)}")
        rows = [
            (found["index"], found["status"], found["audio_seconds"] or "", found["error_code"],
             found["text"])
            for found in segments or ()
        ]  # fmt: skip
        if rows:
            for line in table(("index", "status", "seconds", "error", "text"), rows):
                self.stdout.write(line)

    def _cancel(self, client: Client, chosen: Namespace) -> None:
        self._tell_jobs([client.jobs.cancel(job_id) for job_id in chosen.ids], chosen)

    def _retry(self, client: Client, chosen: Namespace) -> None:
        self._tell_jobs([client.jobs.retry(job_id) for job_id in chosen.ids], chosen)

    def _tell_jobs(self, jobs: list[Job], chosen: Namespace) -> None:
        if chosen.json:
            self.tell({"jobs": jobs})
            return
        for job in jobs:
            self.stdout.write(f"{job['id']}  {job['status']}  {_done(job)}")

    def _download(self, client: Client, chosen: Namespace) -> None:
        job = client.jobs.get(chosen.id)
        item = Followed(str(job["id"]), job, _target_of(job, chosen.output))
        self.followed.append(item)
        if chosen.follow:
            self.follow(client)
        else:
            size = client.jobs.download(job["id"], item.target).stat().st_size
            item.is_written = item.is_closed = size > 0
            item.error = job_error(client, job) if job["status"] in JOB_FINAL else None
        if not item.is_written and item.error is not None:
            raise StepError(*item.error)
        if item.error is not None:
            self.note(f"Incomplete: {item.error[0]}: {item.error[1]}")
        if chosen.json:
            self.tell(item.as_object())
        else:
            self.stdout.write(outcome(item) if chosen.follow else f"{item.target}")


def count(text: str) -> int:
    """Return a number of rows.

    Raises:
        ValueError: it is not positive; argparse tells that.
    """
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _target_of(job: Job, output: Path | None) -> Path:
    """Return where a job's file goes.

    Raises:
        StepError: format_differs, the name promises another format than the file has.
    """
    name = f"speech-{job['id'][:8]}.{job['format']}"
    if output is None:
        return Path(name)
    if output.is_dir():
        return output / name
    suffix = output.suffix.lower().removeprefix(".")
    if suffix in FORMATS and suffix != job["format"]:
        raise StepError(
            "format_differs",
            f"The job's file has the format {job['format']}, not {suffix}; give a name that "
            "ends in the file's format.",
        )
    return output


def _described(job: Job) -> list[tuple[str, Any]]:
    """Return what is worth a line of a job."""
    rows: list[tuple[str, Any]] = [
        ("id", job["id"]),
        ("status", job["status"]),
        ("segments", summary(job)),
        ("failed", job["segments_failed"] or ""),
        ("place", job["queue_position"] or ""),
        ("voice", _voices(job)),
        ("format", job["format"]),
        ("seconds", round(job["audio_seconds"], 1) or ""),
        ("made", _moment(job["created_at"])),
        ("error", f"{job['error_code']}: {job['error_message']}" if job["error_code"] else ""),
        ("text", job["text_start"]),
    ]
    return [(name, value) for name, value in rows if value != ""]


def _voices(job: Job) -> str:
    return ", ".join(voice["name"] or "own clip" for voice in job["voices"])


def _done(job: Job) -> str:
    return f"{job['segments_done']}/{job['segments_total']}"


def _moment(text: str) -> str:
    return text[:19].replace("T", " ")
