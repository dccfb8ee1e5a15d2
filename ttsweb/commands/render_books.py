"""Render a folder or a manifest of books over the API: make a batch, send its files, follow it."""

from __future__ import annotations

import hashlib
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ttsweb.client import ApiError, Client, ClientError
from ttsweb.client.book_batches import (
    BookBatch,
    BookBatchEntry,
    digest_of_request,
    entries_of_folder,
)
from ttsweb.client.http import WAIT_RETRIES
from ttsweb.commands.book_batch_files import LAYOUTS, SHELF, BatchFiles
from ttsweb.commands.casting_arguments import casting_options_of
from ttsweb.commands.errors import CommandError, StepError
from ttsweb.commands.job_arguments import options_of, voices_of
from ttsweb.commands.remote_command import RemoteCommand
from ttsweb.terminal.book_batch_bars import BookBatchBars, told_of_batch

AT_WORK = "sampling,queued,running,paused"
FINISHED = "succeeded,partial"
_NOT_OF_BOOKS = ("deadline", "webhook")  # the webhook is the batch's


def add_batch_arguments(parser: ArgumentParser) -> None:
    """Take a manifest, and what a batch of books is told."""
    group = parser.add_argument_group("many books at once: a folder, or a manifest")
    group.add_argument(
        "--manifest",
        type=Path,
        metavar="FILE",
        help="CSV with a header (file, voice, title and so on) or JSONL; paths are relative to it",
    )
    group.add_argument(
        "--sample",
        choices=("none", "first", "hold"),
        default="none",
        help=(
            "first: render one chapter of every book first; hold: render the rest only after "
            "approval"
        ),
    )
    add_layout_argument(group)


def add_layout_argument(parser: Any) -> None:
    """Take how the finished books lie below the folder."""
    parser.add_argument(
        "--layout",
        choices=LAYOUTS,
        default=SHELF,
        help=(
            "shelf: Author/Series/Title, as Audiobookshelf needs it; flat: as in the source folder"
        ),
    )


def is_batch(chosen: Namespace) -> bool:
    """Say whether many books are asked for."""
    return chosen.manifest is not None or any(path.is_dir() for path in chosen.files)


def check_batch_arguments(chosen: Namespace) -> None:
    """Refuse arguments that do not go together.

    Raises:
        CommandError: with exit code 2.
    """
    if chosen.manifest is not None and chosen.files:
        raise CommandError("give files, or a manifest that names them, but not both", returncode=2)
    if chosen.manifest is None and not chosen.files:
        raise CommandError("the following arguments are required: FILE", returncode=2)
    if is_batch(chosen) and len(chosen.files) > 1:
        raise CommandError("give only one folder at a time", returncode=2)
    if is_batch(chosen) and chosen.out.suffix and not chosen.out.is_dir():
        raise CommandError(
            f"{chosen.out}: expected a folder, as there are many books", returncode=2
        )
    if not is_batch(chosen) and chosen.sample != "none":
        raise CommandError("--sample works only for a folder or a manifest of books", returncode=2)


def render_books(command: RemoteCommand, client: Client, chosen: Namespace) -> None:
    """Make a batch of a folder or a manifest and send its files; the same call goes on with it.

    Raises:
        StepError: there are no books, a file is missing, or not all books have become whole.
        ClientError, OSError: the server is away, or a file cannot be read or written.
        ValueError: two voices for one speaker.
    """
    source: Path = chosen.manifest or chosen.files[0]
    folder = source.parent if chosen.manifest else source
    entries: list[dict[str, Any]] | Path = source if chosen.manifest else entries_of_folder(folder)
    if not entries:
        raise StepError("folder_empty", f"{folder} has no books.")
    defaults = _defaults(chosen)
    files = _digests(folder, _names(source, entries))
    said = source.read_bytes() if chosen.manifest else b""
    key = digest_of_request(said, files, defaults, chosen.sample, chosen.webhook)
    try:
        batch = client.book_batches.create(
            entries,
            name=(source.stem if chosen.manifest else source.resolve().name)[:200],
            defaults=defaults,
            sample=chosen.sample,
            webhook=chosen.webhook,
            idempotency_key=key,
        )
    except ApiError as error:
        if error.code == "book_batch_entries_invalid":
            for found in error.errors:
                command.note(str(found["detail"]))
        raise
    if batch["closed_at"] is None:
        command.come_back = [_same_call()]
        _send(command, client, batch, folder)
        batch = client.book_batches.close(batch["id"])
    command.come_back = [come_back(batch["id"], chosen.out, chosen.layout)]
    if chosen.follow:
        follow_books(command, client, batch, chosen)
        return
    if chosen.json:
        command.tell(batch)
    else:
        command.stdout.write(f"{batch['id']}  {batch['status']}  {told_of_batch(batch)}")
        command.note(f"Fetch the files with\n  {command.come_back[0]}")
    command.come_back = []


def follow_books(
    command: RemoteCommand, client: Client, batch: BookBatch, chosen: Namespace
) -> None:
    """Wait for the end of a batch, and write the files of its books as soon as they are there.

    Raises:
        StepError: not all books have become whole, after the files of the others were written.
    """
    files = BatchFiles(client, batch["id"], chosen.out, chosen.layout)
    errors: dict[str, str] = {}
    client.retries = WAIT_RETRIES
    is_told = False
    with BookBatchBars(sys.stderr) as bars:
        while True:
            at_work: list[BookBatchEntry] = []
            if bars.is_drawn:
                at_work = list(client.book_batches.entries(batch["id"], state=AT_WORK))
            bars.show(batch, at_work)
            _fetch_new(client, batch, files, errors)
            if batch["ended_at"] is not None:
                break
            if batch["status"] == "to_approve" and not is_told:
                is_told = True
                command.note(f"The samples wait for approval: {approve_line(batch['id'])}")
            batch = client.book_batches.poll(batch["id"], 1.0)
    command.come_back = []
    _tell_end(command, client, batch, files, errors, as_json=chosen.json)


def come_back(batch_id: str, out: Path, layout: str) -> str:
    """Return the line that follows a batch later."""
    return f"./tts book-batches wait {batch_id} --out {shlex.quote(str(out))} --layout {layout}"


def approve_line(batch_id: str) -> str:
    """Return the lines that hear and approve samples."""
    return (
        f"download them with ./tts book-batches samples {batch_id}, then render the rest "
        f"with ./tts book-batches approve {batch_id}"
    )


def _defaults(chosen: Namespace) -> dict[str, Any]:
    """Return the options of entries that say nothing of their own."""
    options = {k: v for k, v in options_of(chosen).items() if k not in _NOT_OF_BOOKS}
    options["format"] = chosen.format or "m4b"
    if chosen.voice:
        voices = voices_of(chosen)
        if isinstance(voices, str):
            options["voice"] = voices
        else:
            options["voices"] = {str(speaker): name for speaker, name in voices.items()}
    return options | casting_options_of(chosen)


def _names(source: Path, entries: list[dict[str, Any]] | Path) -> list[str]:
    """Return the files that the entries name; a line that cannot be read is the server's to tell.

    Raises:
        StepError: the manifest cannot be read at all.
    """
    if not isinstance(entries, Path):
        return [one["file"] for one in entries]
    # Of the server's own code, so that both read a manifest alike.
    from synth.book_batches.manifest import read_manifest
    from synth.jobs.rejections import SubmitRejectedError

    try:
        found = read_manifest(source.read_bytes(), most=100_000)
    except SubmitRejectedError as error:
        raise StepError(error.code, f"{source}: {error}") from error
    return [name for one in found if isinstance(name := one.fields.get("file"), str)]


def _digests(folder: Path, names: list[str]) -> Mapping[str, str]:
    """Return the sha256 of each file: the same files make the same batch, an edited one another.

    Raises:
        StepError: file_missing, told before anything is made.
    """
    found = {}
    for name in names:
        path = Path(folder, *PurePosixPath(name).parts)
        if not path.is_file():
            raise StepError("file_missing", f"{path}: this file does not exist.")
        with path.open("rb") as file:
            found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _send(command: RemoteCommand, client: Client, batch: BookBatch, folder: Path) -> None:
    def tell(name: str, number: int, total: int) -> None:
        if sys.stderr.isatty():
            command.note(f"sending {number}/{total}  {name}")

    missing = client.book_batches.upload_missing(batch["id"], folder, on_file=tell)
    if missing:
        raise StepError("file_missing", f"{folder / missing[0]}: this file does not exist.")


def _same_call() -> str:
    """Return the line that goes on with what was not sent."""
    return shlex.join(["./tts", *sys.argv[1:]])


def _fetch_new(client: Client, batch: BookBatch, files: BatchFiles, errors: dict[str, str]) -> None:
    """Write what has ended since; what cannot be written is told at the end."""
    finished = batch["counts"]["succeeded"] + batch["counts"]["partial"]
    if len(files.written) + len(errors) >= finished:
        return
    for entry in client.book_batches.entries(batch["id"], state=FINISHED):
        if entry["file"] in errors or files.has(entry):
            continue
        try:
            files.fetch(entry)
        except ClientError as error:
            if error.code in ("server_unreachable",):
                raise
            errors[entry["file"]] = f"{error.code}: {error}"


def _tell_end(
    command: RemoteCommand,
    client: Client,
    batch: BookBatch,
    files: BatchFiles,
    errors: dict[str, str],
    *,
    as_json: bool,
) -> None:
    report = client.book_batches.report(batch["id"])
    broken = [one for one in report["books"] if one["status"] != "succeeded"]
    if as_json:
        command.tell({"batch": batch, "report": report, "files": files.written, "errors": errors})
    else:
        command.stdout.write(f"{batch['status']}  {told_of_batch(batch)}")
        for one in broken:
            why = f"{one['error_code']}: {one['error_message']}" if one["error_code"] else ""
            command.note(f"{one['file']}: {one['status']}  {why}".rstrip())
        for name, why in errors.items():
            command.note(f"{name}: {why}")
    if broken or errors:
        sys.stdout.flush()
        raise SystemExit(1)
