"""List, show, plan, start, pause, retry and download books over the API."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, get_args

from synth.formats import BOOK_FILES
from ttsweb.client import JOB_FINAL, JOB_WITH_AUDIO, Client, ClientError
from ttsweb.client.book_types import Book, BookFileKind
from ttsweb.commands import noun_command as nouns
from ttsweb.commands.base import StepError
from ttsweb.commands.job_arguments import SWITCHES, edits_of, left_out_lines
from ttsweb.commands.remote_command import download_line
from ttsweb.commands.terminal import BookBars, one_line, speed_of

ENDINGS = {
    **{name: one.extension for name, one in BOOK_FILES.items()},
    "chapters": "zip",
    "shelf": "zip",
    "read_along": "epub",
    "sample": "mp3",
    "report": "json",
}
CHAPTER_COLUMNS: nouns.Cells = {
    "#": lambda chapter: chapter["index"] + 1,
    "read": lambda chapter: "yes" if chapter["included"] else "no",
    "chars": "source_chars",
    "time": lambda chapter: f"{chapter['seconds'] / 60:.0f} min",
    "lang": "language",
    "voice": "voice",
    "title": lambda chapter: (
        chapter["title"] if chapter["included"] else f"{chapter['title']} ({chapter['reason']})"
    ),
}
FILE_COLUMNS: nouns.Cells = {
    "id": "id",
    "kind": "kind",
    "status": "status",
    "MB": lambda file: f"{file['size_bytes'] / 1e6:.1f}",
    "error": "error_message",
}


class Command(nouns.NounCommand):
    help = "Manage books on the server at TTS_URL; ./tts render uploads them."
    noun = "books"
    actions: ClassVar[nouns.Actions] = {
        "ls": nouns.action("list books, newest first", nouns.LIMIT),
        "show": nouns.action("show a book and its progress", nouns.ID),
        "plan": nouns.action(
            "print what is spoken of a book, and what is not", *SWITCHES, nouns.ID
        ),
        "start": nouns.action(
            "render a planned book",
            nouns.argument(
                "--voice", help="id or name of a voice, instead of the book's present voice"
            ),
            nouns.ID,
        ),
        "files": nouns.action("list the files that were made of a book", nouns.ID),
        "download": nouns.action(
            "download a file of a book",
            nouns.argument(
                "--kind",
                choices=get_args(BookFileKind),
                help="kind of file, made first if it does not exist; default: the audiobook",
            ),
            nouns.argument("--preset", choices=("standard", "acx")),
            nouns.switch("--partial", "use only the chapters that are complete now"),
            nouns.OUT,
            nouns.follow("wait until the book has ended"),
            nouns.ID,
        ),
        **{
            name: nouns.each(f"{name} books")
            for name in ("pause", "resume", "cancel", "retry", "approve", "delete")
        },
    }
    columns: ClassVar[nouns.Cells] = {
        "id": "id",
        "status": "status",
        "done": nouns.share_of,
        "title": lambda book: book["title"] or book["filename"],
        "error": "error_message",
    }
    lines: ClassVar[nouns.Cells] = {
        "id": "id",
        "title": lambda book: book["title"] or book["filename"],
        "authors": lambda book: ", ".join(book["authors"]),
        "status": "status",
        "job": "job",
        "chapters": lambda book: "{included} of {chapters}".format_map(_plan(book)),
        "expected": lambda book: f"{_plan(book)['expected_seconds'] / 3600:.2f} h",
        "progress": lambda book: (
            f"{book['progress']['share']:.1%}, {speed_of(book['progress'], book['status'])}"
            if book["progress"]
            else ""
        ),
        "error": nouns.error_of,
    }

    def do_plan(self, client: Client, chosen: Namespace) -> None:
        plan = client.books.plan(chosen.id)
        if chosen.include or chosen.exclude:
            edits = edits_of(chosen, [one["id"] for one in plan["chapters"]])
            plan = client.books.edit(chosen.id, edits, plan_number=plan["plan_number"])
        if chosen.json:
            self.tell(plan)
            return
        self.print_table(CHAPTER_COLUMNS, plan["chapters"])
        for line in left_out_lines(plan):
            self.stdout.write(line)
        for warning in plan["warnings"]:
            self.note(f"warning: {one_line(str(warning), 200)}")

    def do_start(self, client: Client, chosen: Namespace) -> None:
        self.print_acted([client.books.start(chosen.id, voice=chosen.voice)], chosen)

    def do_files(self, client: Client, chosen: Namespace) -> None:
        self.print_rows("files", client.books.files(chosen.id), chosen, FILE_COLUMNS)

    def do_download(self, client: Client, chosen: Namespace) -> None:
        book = client.books.get(chosen.id)
        if chosen.follow and book["status"] not in JOB_FINAL:
            line = download_line("books", book["id"], chosen.out)
            book = self.wait(client, book, BookBars(sys.stderr), line)
            self.come_back = []
        if book["status"] in JOB_FINAL and book["status"] not in JOB_WITH_AUDIO:
            raise StepError(*nouns.end_of("book", book))
        path = self._fetch(client, book, chosen)
        if chosen.json:
            self.tell({"book": book["id"], "path": str(path.resolve())})
        else:
            self.stdout.write(f"{book['title'] or book['filename']} -> {path}")

    def _fetch(self, client: Client, book: Book, chosen: Namespace) -> Path:
        given = {"preset": chosen.preset, "partial": chosen.partial}
        options: dict[str, Any] = {name: value for name, value in given.items() if value}
        kind = chosen.kind or str(book["options"].get("format", "m4b"))
        if chosen.kind is None and not options:
            return client.books.download(book["id"], _target_of(book, chosen.out, kind))
        made = client.books.request_file(book["id"], kind, **options)
        made = client.books.wait_file(book["id"], made["id"])
        if made["status"] == "failed":
            raise ClientError(made["error_code"], made["error_message"])
        target = _target_of(book, chosen.out, ENDINGS.get(kind, kind))
        return client.books.download_file(book["id"], made["id"], target)


def _plan(book: Book) -> Mapping[str, Any]:
    return book["plan"] or {"included": 0, "chapters": 0, "expected_seconds": 0}


def _target_of(book: Book, out: Path | None, ending: str) -> Path:
    name = f"{Path(book['filename']).stem}.{ending}"
    return nouns.target_of(name, out, is_file=out is not None and bool(out.suffix))
