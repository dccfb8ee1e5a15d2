"""Render a book over the API: send it, look at its plan, start it, follow it, write its file."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from synth.formats import BOOK_FORMATS
from ttsweb.client import JOB_FINAL, JOB_WITH_AUDIO, Client
from ttsweb.client.book_types import Book
from ttsweb.client.http import WAIT_RETRIES
from ttsweb.commands.errors import StepError
from ttsweb.commands.job_arguments import casting_options_of, options_of, voices_of
from ttsweb.commands.plan_switches import edits_of
from ttsweb.commands.remote_command import RemoteCommand
from ttsweb.terminal.bars import BookBars, speed_of

SUFFIXES = (".epub", ".docx", ".html", ".htm", ".xhtml", ".pdf")
TEXTS = (".txt", ".md", ".markdown")  # that are no books unless somebody says so
_NOT_OF_BOOKS = ("deadline",)  # of the job, once that is there


def is_book(path: Path, chosen: Namespace) -> bool:
    """Say whether a file is rendered as a book; a text is one job without chapters.

    A text is a book where `--book` says so, or where an M4B is to be made of it.
    """
    wants_book = chosen.book or chosen.out.suffix.lower() == ".m4b"
    return path.suffix.lower() in SUFFIXES or (wants_book and path.suffix.lower() in TEXTS)


def render_book(command: RemoteCommand, client: Client, path: Path, chosen: Namespace) -> None:
    """Send a book and start it; with `--follow` wait for its end and write its file.

    Raises:
        StepError: the book cannot be read, was not started, or has not become whole.
        ClientError, OSError: the server is away, or a file cannot be read or written.
        ValueError: two voices for one speaker, or the name of the file is of another format.
    """
    target = target_of(path, chosen.out, chosen.format)
    voices = voices_of(chosen)
    spoken: dict[str, Any] = {"voice": voices} if isinstance(voices, str) else {"voices": voices}
    options = {k: v for k, v in options_of(chosen).items() if k not in _NOT_OF_BOOKS}
    options |= {"format": FORMAT_OF.get(target.suffix.lower(), chosen.format)}
    options |= casting_options_of(chosen)
    sent = client.books.upload(path, **spoken, **options)
    planned = client.books.wait_planned(sent["id"])
    if planned["status"] == "failed":
        raise StepError(planned["error_code"], planned["error_message"])
    if chosen.include or chosen.exclude:
        plan = client.books.plan(planned["id"])
        edits = edits_of(chosen, [chapter["id"] for chapter in plan["chapters"]])
        client.books.edit(planned["id"], edits, plan_number=plan["plan_number"])
        planned = client.books.get(planned["id"])
    _tell_plan(command, planned)
    book = client.books.start(planned["id"])
    command.come_back.append(come_back(book, target))
    if chosen.follow:
        book = _follow(client, book)
    _end(command, client, book, target, chosen)


def target_of(path: Path, out: Path, audio_format: str) -> Path:
    """Return the file that is written: `out` itself if it has a format's ending, else below it.

    Raises:
        ValueError: the ending is of no format.
    """
    if out.suffix and not out.is_dir():
        if out.suffix.lower() not in FORMAT_OF:
            known = ", ".join(sorted(FORMAT_OF))
            raise ValueError(f"{out}: expected a folder, or a name that ends in {known}")
        return out
    return out / f"{path.stem}.{BOOK_FORMATS[audio_format].extension}"


FORMAT_OF = {f".{one.extension}": name for name, one in BOOK_FORMATS.items()}


def come_back(book: Book, target: Path) -> str:
    """Return the line that fetches the file later."""
    return f"./tts jobs download {book['job']} --follow -o {shlex.quote(str(target))}"


def _tell_plan(command: RemoteCommand, book: Book) -> None:
    plan = book["plan"]
    if plan is not None:
        command.note(
            f"{book['title'] or book['filename']}: {plan['included']} of {plan['chapters']} "
            f"chapters, about {plan['expected_seconds'] / 60:.0f} minutes of audio"
        )


def _follow(client: Client, book: Book) -> Book:
    client.retries = WAIT_RETRIES
    with BookBars(sys.stderr) as bars:
        return client.books.wait(book["id"], on_update=bars.show)


def _end(
    command: RemoteCommand, client: Client, book: Book, target: Path, chosen: Namespace
) -> None:
    """Write the file where there is one, and say what has become of the book."""
    is_over = book["status"] in JOB_FINAL
    is_written = is_over and book["status"] in JOB_WITH_AUDIO
    if is_written:
        client.books.download(book["id"], target)
    if is_over:
        command.come_back.clear()
    found: dict[str, Any] = {**book, "audio_path": str(target.resolve()) if is_written else None}
    if chosen.json:
        command.tell(found)
    elif not is_over:
        command.stdout.write(f"{book['id']}  {book['status']}")
        command.note(f"Fetch the file with\n  {come_back(book, target)}")
    else:
        progress = book["progress"]
        told = speed_of(progress, book["status"]) if progress is not None else ""
        rendered = f"{progress['takes_rendered']} rendered, " if progress is not None else ""
        end = f" -> {target}" if is_written else ""
        command.stdout.write(f"{book['status']}  {rendered}{told}{end}")
    if is_over and book["status"] != "succeeded":
        if not chosen.json:
            command.note(f"{book['error_code']}: {book['error_message']}")
        sys.stdout.flush()
        raise SystemExit(1)
