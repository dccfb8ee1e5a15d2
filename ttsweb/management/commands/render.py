"""Render text files and books over the API: one job and one audio file for each."""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentParser, Namespace
from importlib import import_module
from pathlib import Path
from typing import Any

from synth.formats import BOOK_FORMATS, FORMATS
from ttsweb.client import JOB_FINAL, JOB_WITH_AUDIO, ApiError, Client, Job
from ttsweb.client.book_types import Book
from ttsweb.client.http import WAIT_RETRIES
from ttsweb.commands.base import CommandError, StepError
from ttsweb.commands.job_arguments import (
    add_casting_arguments,
    add_job_arguments,
    add_plan_arguments,
    casting_flags_of,
    casting_options_of,
    edits_of,
    options_of,
    voices_of,
)
from ttsweb.commands.remote_command import Followed, RemoteCommand, outcome, submit
from ttsweb.commands.render_books import (
    add_batch_arguments,
    check_batch_arguments,
    is_batch,
    render_books,
)
from ttsweb.commands.terminal import BookBars, speed_of

BOOK_SUFFIXES = (".epub", ".docx", ".html", ".htm", ".xhtml", ".pdf")
BOOK_TEXTS = (".txt", ".md", ".markdown")  # that are no books unless somebody says so
_NOT_OF_BOOKS = ("deadline",)  # of the job, once that is there


def is_book(path: Path, chosen: Namespace) -> bool:
    """Say whether a file is rendered as a book; a text is one job without chapters.

    A text is a book where `--book` says so, or where an M4B is to be made of it.
    """
    wants_book = chosen.book or chosen.out.suffix.lower() == ".m4b"
    return path.suffix.lower() in BOOK_SUFFIXES or (
        wants_book and path.suffix.lower() in BOOK_TEXTS
    )


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
        speed = speed_of(progress, book["status"]) if progress is not None else ""
        rendered = f"{progress['takes_rendered']} rendered, " if progress is not None else ""
        end = f" -> {target}" if is_written else ""
        command.stdout.write(f"{book['status']}  {rendered}{speed}{end}")
    if is_over and book["status"] != "succeeded":
        if not chosen.json:
            command.note(f"{book['error_code']}: {book['error_message']}")
        sys.stdout.flush()
        raise SystemExit(1)


TEXT_SUFFIXES = (".txt", ".md")
NO_VOICE = "the following arguments are required: --voice (only --plan works without it)"


class Command(RemoteCommand):
    help = (
        "Render text files on the server at TTS_URL, with one job and one audio file for "
        "each. Without --follow the command returns at once and prints how to download the "
        "audio later."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "files",
            nargs="*",
            type=Path,
            metavar="FILE",
            help=(
                "text files (.txt or .md, in UTF-8), books (.epub, .docx, .html, .pdf), or a "
                "folder of books"
            ),
        )
        parser.add_argument(
            "--book",
            action="store_true",
            help="treat a text file as a book with chapters; implied if --out ends in .m4b",
        )
        parser.add_argument(
            "--out",
            type=Path,
            default=Path(),
            help="folder for the audio, by default the current one; for a book also a file name",
        )
        add_job_arguments(parser, needs_voice=False)
        add_plan_arguments(parser)
        add_casting_arguments(parser)
        add_batch_arguments(parser)
        parser.set_defaults(format=None)  # what it is unless given: m4b of many books, else wav
        parser.add_argument(
            "--follow", action="store_true", help="wait for the end, and write the audio"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the plan of a book, for which no server is needed, or render."""
        if options["plan"]:
            import_module("ttsweb.commands.plan_command").print_plan(self, Namespace(**options))
            return
        check_batch_arguments(Namespace(**options))
        if not options["voice"] and not options["manifest"]:
            raise CommandError(NO_VOICE, returncode=2)
        super().handle(*args, **options)

    def run(self, client: Client, chosen: Namespace) -> None:
        """Check all files, queue all, then follow all; a book goes alone."""
        is_one_book = not is_batch(chosen) and any(is_book(path, chosen) for path in chosen.files)
        if (chosen.include or chosen.exclude) and not is_one_book:
            message = "--include and --exclude work for one book only, as its plan names its parts"
            raise CommandError(message, returncode=2)
        if is_batch(chosen):
            self._render_books(client, chosen)
            return
        chosen.format = chosen.format or "wav"
        if is_one_book:
            self._render_book(client, chosen)
            return
        if flags := casting_flags_of(chosen):
            raise CommandError(f"{flags[0]} works only for books; add --book", returncode=2)
        try:
            voices = voices_of(chosen)
        except ValueError as error:
            raise CommandError(str(error), returncode=2) from error
        targets = targets_of(chosen.files, chosen.out, chosen.format)
        texts = [read_text(path) for path in chosen.files]
        for path, text, target in zip(chosen.files, texts, targets, strict=True):
            self._submit(client, path, text, target, voices, chosen)
        if chosen.follow:
            self.follow(client)
        self._tell_outcome(chosen)
        failed = [item for item in self.followed if item.error is not None]
        if failed:
            sys.stdout.flush()
            raise SystemExit(1)

    def _render_book(self, client: Client, chosen: Namespace) -> None:
        if len(chosen.files) > 1:
            raise CommandError("give only one book, or a folder of books", returncode=2)
        try:
            render_book(self, client, chosen.files[0], chosen)
        except ValueError as error:
            raise CommandError(str(error), returncode=2) from error

    def _render_books(self, client: Client, chosen: Namespace) -> None:
        try:
            render_books(self, client, chosen)
        except ValueError as error:
            raise CommandError(str(error), returncode=2) from error

    def _submit(
        self,
        client: Client,
        path: Path,
        text: str,
        target: Path,
        voices: str | dict[int, str],
        chosen: Namespace,
    ) -> None:
        def keep(job: Job) -> None:
            self.followed.append(Followed(str(path), job, target))

        try:
            submit(client, text, voices, tell=self.note, keep=keep, **options_of(chosen))
        except ApiError as error:
            # What is wrong with one text is told with its name.
            if any(found.get("attr") == "text" for found in error.errors):
                error.args = (f"{path}: {error.detail}",)
            raise

    def _tell_outcome(self, chosen: Namespace) -> None:
        if chosen.json:
            rows = [{"file": item.label, **item.as_object()} for item in self.followed]
            self.tell({"jobs": rows})
            return
        for item in self.followed:
            end = outcome(item) if chosen.follow else item.come_back
            self.stdout.write(f"{item.label}  {end}")


def targets_of(files: list[Path], folder: Path, audio_format: str) -> list[Path]:
    """Return the audio file of each text file.

    Raises:
        CommandError: with exit code 2, when two texts would have the same one, or a file is none
            that can be rendered.
    """
    targets: dict[Path, Path] = {}
    for path in files:
        if path.suffix.lower() not in TEXT_SUFFIXES:
            raise CommandError(
                f"{path}: expected a name in {' or '.join(TEXT_SUFFIXES)}", returncode=2
            )
        target = folder / f"{path.stem}.{FORMATS[audio_format].extension}"
        if target in targets:
            raise CommandError(
                f"{targets[target]} and {path} would both become {target}; rename one, or "
                "use another folder",
                returncode=2,
            )
        targets[target] = path
    if folder.exists() and not folder.is_dir():
        raise CommandError(f"{folder} is not a folder", returncode=2)
    return list(targets)


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        StepError: text_not_utf8 or text_empty.
        OSError: it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise StepError("text_not_utf8", f"{path} is not UTF-8 text: {error.reason}.") from error
    if not text.strip():
        raise StepError("text_empty", f"{path} has no text.")
    return text
