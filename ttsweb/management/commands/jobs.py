"""List, show, cancel, retry and download jobs over the API."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import ClassVar

from synth.formats import FORMATS
from ttsweb.client import JOB_FINAL, Client, Job
from ttsweb.commands import noun_command as nouns
from ttsweb.commands.base import StepError
from ttsweb.commands.remote_command import Followed, job_error, outcome, summary

SEGMENT_COLUMNS: nouns.Cells = {
    "index": "index",
    "status": "status",
    "seconds": lambda segment: segment["audio_seconds"] or "",
    "error": "error_code",
    "text": "text",
}


class Command(nouns.NounCommand):
    help = "List, show, cancel, retry and download jobs of the server at TTS_URL."
    noun = "jobs"
    actions: ClassVar[nouns.Actions] = {
        "ls": nouns.action(
            "list jobs, newest first",
            nouns.STATUS,
            nouns.argument("--voice", help="name or id of a voice"),
            nouns.LIMIT,
        ),
        "show": nouns.action(
            "show a job",
            nouns.ID,
            nouns.switch("--segments", "also show all its segments"),
        ),
        "cancel": nouns.each("cancel jobs"),
        "retry": nouns.each("queue failed and cancelled segments again"),
        "download": nouns.action(
            "download a job's file",
            nouns.ID,
            nouns.argument("-o", "--output", type=Path, help="file or folder to write to"),
            nouns.follow("wait until the job has ended"),
        ),
    }
    filters = ("status", "voice")
    columns: ClassVar[nouns.Cells] = {
        "id": "id",
        "status": "status",
        "segments": lambda job: f"{job['segments_done']}/{job['segments_total']}",
        "made at": nouns.moment_of("created_at"),
        "voice": lambda job: _voices(job),
        "text": "text_start",
    }
    brief = ("id", "status", "segments")
    lines: ClassVar[nouns.Cells] = {
        "id": "id",
        "status": "status",
        "segments": summary,
        "failed": lambda job: job["segments_failed"] or "",
        "place": "queue_position",
        "voice": lambda job: _voices(job),
        "format": "format",
        "seconds": nouns.seconds_of,
        "made": nouns.moment_of("created_at"),
        "error": nouns.error_of,
        "text": "text_start",
    }

    def do_show(self, client: Client, chosen: Namespace) -> None:
        job = client.jobs.get(chosen.id)
        segments = list(client.jobs.segments(chosen.id)) if chosen.segments else []
        self.show({**job, "segments": segments} if chosen.segments else job, chosen)
        if segments and not chosen.json:
            self.print_table(SEGMENT_COLUMNS, segments)

    def do_download(self, client: Client, chosen: Namespace) -> None:
        """Write a job's file; what is not whole is an error, or a line where there is a file."""
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


def _target_of(job: Job, output: Path | None) -> Path:
    """Return where a job's file goes.

    Raises:
        StepError: format_differs, the name promises another format than the file has.
    """
    target = nouns.target_of(f"speech-{job['id'][:8]}.{job['format']}", output, is_file=True)
    suffix = target.suffix.lower().removeprefix(".")
    if suffix in FORMATS and suffix != job["format"]:
        raise StepError(
            "format_differs",
            f"The job's file has the format {job['format']}, not {suffix}; give a name that "
            "ends in the file's format.",
        )
    return target


def _voices(job: Job) -> str:
    return ", ".join(voice["name"] or "own clip" for voice in job["voices"])
