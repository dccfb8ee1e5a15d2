"""What the commands that work over the API have in common: errors, signals, JSON, jobs followed.

What was not reached when Ctrl-C came goes on without us, and a command says how to come back to it.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import os
import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from synth.formats import FORMATS
from ttsweb import settings
from ttsweb.client import (
    JOB_FINAL,
    JOB_WITH_AUDIO,
    ApiError,
    AuthenticationError,
    Client,
    ClientError,
    ConflictError,
    DownloadError,
    Job,
    NotFoundError,
    ServerUnreachableError,
)
from ttsweb.client.http import WAIT_RETRIES
from ttsweb.commands.base import (
    EXIT_INTERRUPTED,
    BaseCommand,
    Output,
    StepError,
    reporting_errors,
    signals_held,
    signals_interrupt,
)
from ttsweb.commands.terminal import JobBars
from ttsweb.private_files import users_umask

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
        return download_line("jobs", self.job["id"], self.target)

    def as_object(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "job": self.job["id"],
            "status": self.job["status"],
            "audio_path": str(self.target.resolve()) if self.is_written else None,
            "audio_seconds": round(self.job["audio_seconds"], 3),
        }
        if self.error is not None:
            found["error"] = {"code": self.error[0], "message": self.error[1]}
        return found


def download_line(noun: str, row_id: str, target: Path | None) -> str:
    out = f" -o {shlex.quote(str(target))}" if target is not None else ""
    return f"./tts {noun} download {row_id} --follow{out}"


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
            found = client.voices.find(name)
            if found.get("status") != "ready":
                tell(f"The voice {name!r} is being encoded; waiting for it.")
            client.voices.wait_ready(found["id"])
            waited.add(name)


def outcome(item: Followed) -> str:
    if item.error is not None and not item.is_written:
        return f"{item.error[0]}: {item.error[1]}"
    lost = f"; {item.error[0]}: {item.error[1]}" if item.error is not None else ""
    return f"{summary(item.job)} -> {item.target}{lost}"


def summary(job: Job) -> str:
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
    with suppress(ClientError):
        for segment in client.jobs.segments(job["id"]) if job["segments_failed"] else ():
            if segment["status"] == "failed":
                where = f"segment {segment['index']}: {segment['error_message']}"
                return segment["error_code"], where
    return f"job_{job['status']}", f"The job {job['id']} is {job['status']}."


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


RETRIES = 3  # about three seconds: a person waits


def server_url() -> str:
    """Return TTS_URL, else where `./tts serve` listens on this machine."""
    if settings.SERVER_URL:
        return str(settings.SERVER_URL)
    host = settings.HOST
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"http://{host}:{settings.PORT}"
    if address.is_unspecified:  # all addresses, of which this is one
        host = "127.0.0.1" if address.version == 4 else "::1"
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.PORT}"


def open_client() -> Client:
    """Return a client of the server with the key of the settings.

    Raises:
        StepError: api_key_missing, with how to get one.
        ClientError: TTS_URL or TTS_API_KEY cannot be used.
    """
    if not settings.API_KEY:
        raise StepError(
            "api_key_missing",
            f"Set TTS_API_KEY to an API key of {server_url()}. Its admin makes keys at "
            '"API keys"; on the server\'s machine, ./tts create_key --user NAME --name '
            "LABEL makes one as well.",
        )
    return Client(server_url(), settings.API_KEY, retries=RETRIES)


@contextmanager
def reporting_remote_errors(stdout: Output, *, as_json: bool) -> Iterator[None]:
    """Turn what ends a command into one line and exit code 1; with JSON also into one object.

    Raises:
        CommandError: `code: sentence`.
    """
    with reporting_errors(stdout, as_json=as_json):
        try:
            yield
        except ClientError as error:
            raise StepError(error.code, sentence_of(error)) from error
        except OSError as error:
            reason = error.strerror or str(error)
            where = f"{error.filename}: " if error.filename else ""
            raise StepError("file_error", f"{where}{reason}.") from error


def sentence_of(error: ClientError) -> str:
    """Return what to do about an error, in the words of who sits at the command line."""
    if isinstance(error, ServerUnreachableError):
        if settings.SERVER_URL:
            return f"{error} Check the address in TTS_URL."
        return f"{error} ./tts serve starts a server here; TTS_URL can name another one."
    if isinstance(error, AuthenticationError) and error.status == 401:
        return f"{error} Set TTS_API_KEY to a key of {server_url()}."
    if isinstance(error, ApiError) and error.code in ("job_not_finished", "batch_not_finished"):
        return f"{error} --follow waits for it."
    return str(error)


class RemoteCommand(BaseCommand):
    """A command that needs a server and a key, and neither database nor engine.

    Attributes:
        followed: the jobs that were made or asked for; Ctrl-C tells how to come back to them.
        come_back: other lines that lead back to what goes on.
    """

    needs_django = False

    followed: list[Followed]
    come_back: list[str]

    def run(self, client: Client, chosen: Namespace) -> None:
        """Do the command's work; `ClientError` and `OSError` are told by `handle`."""
        raise NotImplementedError

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the command: exit code 0 done, 1 failed, 130 broken off by a signal."""
        chosen = Namespace(**options)
        self.followed, self.come_back = [], []
        try:
            with reporting_remote_errors(self.stdout, as_json=chosen.json), signals_interrupt():
                with open_client() as client, users_umask():
                    try:
                        self.run(client, chosen)
                    except (ClientError, OSError) as error:
                        if not isinstance(error, BrokenPipeError):
                            self._tell_left()
                        raise
                self.stdout.flush()
        except KeyboardInterrupt:
            if chosen.json:
                left = (item for item in self.followed if not item.is_closed)
                jobs = [{"job": item.job["id"], "come_back": item.come_back} for item in left]
                others = [{"come_back": line} for line in self.come_back]
                self.tell({"detached": [*jobs, *others]})
            if not self._tell_left():
                self.note("Stopped.")
            sys.exit(EXIT_INTERRUPTED)
        except BrokenPipeError:  # whoever read our lines has enough of them
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)

    def tell(self, found: Any) -> None:
        self.stdout.write(json.dumps(found))

    def fail(self) -> NoReturn:
        self.stdout.flush()
        raise SystemExit(1)

    def note(self, line: str) -> None:
        """Print a line for a person, beside the answer."""
        self.stderr.write(line, str)  # it is no error, so not in red

    def follow(self, client: Client) -> None:
        """Wait for the files of all jobs in `followed`; a server that starts again ends nothing."""
        client.retries = WAIT_RETRIES
        with JobBars(sys.stderr, len(self.followed)) as bars:
            follow(client, self.followed, bars)

    def _tell_left(self) -> bool:
        """Say how to come back to what goes on without us, and return whether anything does."""
        lines = [item.come_back for item in self.followed if not item.is_closed] + self.come_back
        if lines:
            self.note("The server continues the work. To come back to it, run")
            for line in lines:
                self.note(f"  {line}")
        return bool(lines)


class RemoteSay(RemoteCommand):
    """Queue a job, wait for it, and write its file; Ctrl-C leaves the job as it is."""

    def run(self, client: Client, chosen: Namespace) -> None:
        started = time.monotonic()
        text, made_format = asked_of(chosen)

        def keep(job: Job) -> None:
            self.followed.append(Followed(chosen.output.name, job, chosen.output))

        options = {"format": made_format, "seed": chosen.seed}
        submit(client, text, chosen.voice, tell=self.note, keep=keep, **options)
        [item] = self.followed
        self.follow(client)
        if item.error is not None:
            raise StepError(*item.error)
        tell_spoken(self, chosen, started, item.job["audio_seconds"], item.job["id"])


def asked_of(chosen: Namespace) -> tuple[str, str]:
    """Return the text to speak and the format of its file; raises as `format_of`."""
    made_format = chosen.format or format_of(chosen.output)
    return sys.stdin.read() if chosen.text == "-" else chosen.text, made_format


def tell_spoken(
    command: BaseCommand, chosen: Namespace, started: float, seconds: float, job_id: str
) -> None:
    """Say where a spoken text is, and how long it took since `started` (time.monotonic)."""
    path = chosen.output.resolve()
    if not chosen.json:
        command.stdout.write(f"{path}  ({seconds:.1f} s of audio)")
        return
    answer = {
        "audio_path": str(path),
        "audio_seconds": round(seconds, 3),
        "wall_seconds": round(time.monotonic() - started, 3),
        "job": job_id,
    }
    command.stdout.write(json.dumps(answer))


def format_of(path: Path) -> str:
    """Return the format that a file's suffix names.

    Raises:
        StepError: format_unknown.
    """
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise StepError(
            "format_unknown",
            f"{path.name} has no format in its name; end it in "
            f"{', '.join('.' + name for name in FORMATS)}, or give --format.",
        )
    return suffix
