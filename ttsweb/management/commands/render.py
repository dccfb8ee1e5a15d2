"""Render text files and books over the API: one job and one audio file for each."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from importlib import import_module
from pathlib import Path
from typing import Any

from synth.formats import BOOK_FORMATS, FORMATS
from ttsweb.client import JOB_FINAL, JOB_WITH_AUDIO, ApiError, Client, Job
from ttsweb.client.book_types import Book
from ttsweb.client.http import WAIT_RETRIES
from ttsweb.commands.base import JSON, StepError, UsageError, add_all, argument, switch
from ttsweb.commands.job_arguments import (
    add_casting_arguments,
    add_job_arguments,
    add_plan_arguments,
    casting_flags_of,
    casting_options_of,
    edits_of,
    options_of,
    speakers_of,
    voices_of,
)
from ttsweb.commands.remote_command import Followed, RemoteCommand, download_line, outcome, submit
from ttsweb.commands.render_books import (
    add_batch_arguments,
    check_batch_arguments,
    is_batch,
    render_books,
)
from ttsweb.commands.terminal import BookBars, speed_of

BOOK_SUFFIXES = (".epub", ".docx", ".html", ".htm", ".xhtml", ".pdf")
BOOK_TEXTS = (".txt", ".md", ".markdown")  # that are no books unless somebody says so
TEXT_SUFFIXES = (".txt", ".md")
_NOT_OF_BOOKS = ("deadline",)  # of the job, once that is there
FORMAT_OF = {f".{one.extension}": name for name, one in BOOK_FORMATS.items()}


class Command(RemoteCommand):
    """Queue a job for each file; with `--follow` wait for the audio."""

    help = (
        "Render text files on the server at TTS_URL, with one job and one audio file for "
        "each. Without --follow the command returns at once and prints how to download the "
        "audio later."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        files = argument(
            "files",
            nargs="*",
            type=Path,
            metavar="FILE",
            help="text files (.txt or .md, in UTF-8), books (.epub, .docx, .html, .pdf), or a "
            "folder of books",
        )
        help_text = "treat a text file as a book with chapters; implied if --out ends in .m4b"
        out = argument(
            "--out",
            type=Path,
            default=Path(),
            help="folder for the audio, by default the current one; for a book also a file name",
        )
        add_all(parser, (files, switch("--book", help_text), out))
        add_job_arguments(parser, needs_voice=False)
        add_plan_arguments(parser)
        add_casting_arguments(parser)
        add_batch_arguments(parser)
        parser.set_defaults(format=None)  # what it is unless given: m4b of many books, else wav
        add_all(parser, (switch("--follow", "wait for the end, and write the audio"), JSON))

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the plan of a book, for which no server is needed, or render."""
        if options["plan"]:
            import_module("ttsweb.commands.plan_command").print_plan(self, Namespace(**options))
            return
        check_batch_arguments(Namespace(**options))
        if not options["voice"] and not options["manifest"]:
            raise UsageError(
                "the following arguments are required: --voice (only --plan works without it)"
            )
        super().handle(*args, **options)

    def run(self, client: Client, chosen: Namespace) -> None:
        """Check all files, queue all, then follow all; a book goes alone."""
        is_one_book = not is_batch(chosen) and any(is_book(path, chosen) for path in chosen.files)
        if (chosen.include or chosen.exclude) and not is_one_book:
            raise UsageError(
                "--include and --exclude work for one book only, as its plan names its parts"
            )
        if is_batch(chosen):
            render_books(self, client, chosen)
            return
        chosen.format = chosen.format or "wav"
        if is_one_book:
            if len(chosen.files) > 1:
                raise UsageError("give only one book, or a folder of books")
            self._render_book(client, chosen.files[0], chosen)
            return
        if flags := casting_flags_of(chosen):
            raise UsageError(f"{flags[0]} works only for books; add --book")
        targets = targets_of(chosen.files, chosen.out, chosen.format)
        texts = [read_text(path) for path in chosen.files]
        for path, text, target in zip(chosen.files, texts, targets, strict=True):
            self._submit(client, path, text, target, chosen)
        if chosen.follow:
            self.follow(client)
        if chosen.json:
            rows = [{"file": item.label, **item.as_object()} for item in self.followed]
            self.tell({"jobs": rows})
        else:
            for item in self.followed:
                end = outcome(item) if chosen.follow else item.come_back
                self.stdout.write(f"{item.label}  {end}")
        if any(item.error is not None for item in self.followed):
            self.fail()

    def _submit(
        self, client: Client, path: Path, text: str, target: Path, chosen: Namespace
    ) -> None:
        def keep(job: Job) -> None:
            self.followed.append(Followed(str(path), job, target))

        try:
            voices = voices_of(chosen)
            submit(client, text, voices, tell=self.note, keep=keep, **options_of(chosen))
        except ApiError as error:
            # What is wrong with one text is told with its name.
            if any(found.get("attr") == "text" for found in error.errors):
                error.args = (f"{path}: {error.detail}",)
            raise

    def _render_book(self, client: Client, path: Path, chosen: Namespace) -> None:
        """Send a book and start it; with `--follow` wait for its end and write its file.

        Raises:
            StepError: the book cannot be read, was not started, or has not become whole.
            ClientError, OSError: the server is away, or a file cannot be read or written.
        """
        target = target_of(path, chosen.out, chosen.format)
        options = {k: v for k, v in options_of(chosen).items() if k not in _NOT_OF_BOOKS}
        options |= {"format": FORMAT_OF.get(target.suffix.lower(), chosen.format)}
        options |= casting_options_of(chosen)
        sent = client.books.upload(path, **speakers_of(chosen), **options)
        planned = client.books.wait_planned(sent["id"])
        if planned["status"] == "failed":
            raise StepError(planned["error_code"], planned["error_message"])
        if chosen.include or chosen.exclude:
            parts = client.books.plan(planned["id"])
            edits = edits_of(chosen, [chapter["id"] for chapter in parts["chapters"]])
            client.books.edit(planned["id"], edits, plan_number=parts["plan_number"])
            planned = client.books.get(planned["id"])
        if (plan := planned["plan"]) is not None:
            self.note(
                f"{planned['title'] or planned['filename']}: {plan['included']} of "
                f"{plan['chapters']} chapters, about {plan['expected_seconds'] / 60:.0f} minutes "
                "of audio"
            )
        book = client.books.start(planned["id"])
        self.come_back.append(download_line("jobs", str(book["job"]), target))
        if chosen.follow:
            client.retries = WAIT_RETRIES
            with BookBars(sys.stderr) as bars:
                book = client.books.wait(book["id"], on_update=bars.show)
        self._end_book(client, book, target, chosen)

    def _end_book(self, client: Client, book: Book, target: Path, chosen: Namespace) -> None:
        """Write the file where there is one, and say what has become of the book."""
        is_over = book["status"] in JOB_FINAL
        is_written = is_over and book["status"] in JOB_WITH_AUDIO
        if is_written:
            client.books.download(book["id"], target)
        if chosen.json:
            self.tell({**book, "audio_path": str(target.resolve()) if is_written else None})
        elif not is_over:
            self.stdout.write(f"{book['id']}  {book['status']}")
            self.note(f"Fetch the file with\n  {self.come_back[-1]}")
        else:
            progress = book["progress"]
            speed = speed_of(progress, book["status"]) if progress is not None else ""
            rendered = f"{progress['takes_rendered']} rendered, " if progress is not None else ""
            end = f" -> {target}" if is_written else ""
            self.stdout.write(f"{book['status']}  {rendered}{speed}{end}")
        if is_over:
            self.come_back.clear()
        if is_over and book["status"] != "succeeded":
            if not chosen.json:
                self.note(f"{book['error_code']}: {book['error_message']}")
            self.fail()


def is_book(path: Path, chosen: Namespace) -> bool:
    """Say whether a file is rendered as a book; a text is one job without chapters.

    A text is a book where `--book` says so, or where an M4B is to be made of it.
    """
    wants_book = chosen.book or chosen.out.suffix.lower() == ".m4b"
    suffixes = (*BOOK_SUFFIXES, *BOOK_TEXTS) if wants_book else BOOK_SUFFIXES
    return path.suffix.lower() in suffixes


def target_of(path: Path, out: Path, audio_format: str) -> Path:
    """Return the file that is written: `out` itself if it has a format's ending, else below it.

    Raises:
        UsageError: the ending is of no format.
    """
    if not out.suffix or out.is_dir():
        return out / f"{path.stem}.{BOOK_FORMATS[audio_format].extension}"
    if out.suffix.lower() not in FORMAT_OF:
        known = ", ".join(sorted(FORMAT_OF))
        raise UsageError(f"{out}: expected a folder, or a name that ends in {known}")
    return out


def targets_of(files: list[Path], folder: Path, audio_format: str) -> list[Path]:
    """Return the audio file of each text file.

    Raises:
        UsageError: two texts would have the same one, or a file is none that can be rendered.
    """
    targets: dict[Path, Path] = {}
    for path in files:
        if path.suffix.lower() not in TEXT_SUFFIXES:
            raise UsageError(f"{path}: expected a name in {' or '.join(TEXT_SUFFIXES)}")
        target = folder / f"{path.stem}.{FORMATS[audio_format].extension}"
        if target in targets:
            raise UsageError(
                f"{targets[target]} and {path} would both become {target}; rename one, or "
                "use another folder"
            )
        targets[target] = path
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder")
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
