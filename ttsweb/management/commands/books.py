"""List, show, plan, start, pause, retry and download books over the API."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from itertools import islice
from pathlib import Path
from typing import Any, get_args

from synth.formats import BOOK_FILES
from ttsweb.client import JOB_FINAL, JOB_WITH_AUDIO, Client, ClientError
from ttsweb.client.http import WAIT_RETRIES
from ttsweb.client.types import Book, BookFileKind
from ttsweb.commands.errors import CommandError, StepError
from ttsweb.commands.plan_switches import add_switches, edits_of, left_out_lines
from ttsweb.commands.remote_command import RemoteCommand
from ttsweb.management.commands.jobs import count
from ttsweb.terminal.bars import BookBars, speed_of
from ttsweb.terminal.plain_table import one_line, table

LISTED = 20
_PLAIN = ("pause", "resume", "cancel", "retry", "approve")
ENDINGS = {
    **{name: one.extension for name, one in BOOK_FILES.items()},
    **{"chapters": "zip", "shelf": "zip", "read_along": "epub", "sample": "mp3", "report": "json"},
}


class Command(RemoteCommand):
    """`books ls|show|plan|start|pause|resume|cancel|retry|approve|delete|files|download`."""

    help = "Manage books on the server at TTS_URL; ./tts render uploads them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare one parser for each action."""
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        ls = actions.add_parser("ls", help="list books, newest first")
        ls.add_argument("--limit", type=count, default=LISTED, help=f"how many at most ({LISTED})")
        show = actions.add_parser("show", help="show a book and its progress")
        plan = actions.add_parser("plan", help="print what is spoken of a book, and what is not")
        add_switches(plan)
        start = actions.add_parser("start", help="render a planned book")
        start.add_argument(
            "--voice", help="id or name of a voice, instead of the book's present voice"
        )
        files = actions.add_parser("files", help="list the files that were made of a book")
        download = actions.add_parser("download", help="download a file of a book")
        download.add_argument(
            "--kind",
            choices=get_args(BookFileKind),
            help="kind of file, made first if it does not exist; default: the audiobook",
        )
        download.add_argument("--preset", choices=("standard", "acx"))
        download.add_argument(
            "--partial", action="store_true", help="use only the chapters that are complete now"
        )
        download.add_argument("-o", "--output", "--out", dest="out", type=Path)
        download.add_argument("--follow", action="store_true", help="wait until the book has ended")
        for action in (show, plan, start, files, download):
            action.add_argument("id")
        several = []
        for name in (*_PLAIN, "delete"):
            action = actions.add_parser(name, help=f"{name} books")
            action.add_argument("ids", nargs="+", metavar="id")
            several.append(action)
        for action in (ls, show, plan, start, files, download, *several):
            action.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, client: Client, chosen: Namespace) -> None:
        """Do the action."""
        if chosen.action in _PLAIN:
            act = getattr(client.books, chosen.action)
            self._tell_books([act(one) for one in chosen.ids], chosen)
            return
        actions = {
            "ls": self._list,
            "show": self._show,
            "plan": self._plan,
            "start": self._start,
            "delete": self._delete,
            "files": self._files,
            "download": self._download,
        }
        actions[chosen.action](client, chosen)

    def _list(self, client: Client, chosen: Namespace) -> None:
        self._tell_books(list(islice(client.books.list(), chosen.limit)), chosen)

    def _show(self, client: Client, chosen: Namespace) -> None:
        book = client.books.get(chosen.id)
        if chosen.json:
            self.tell(book)
            return
        progress = book["progress"]
        plan = book["plan"] or {}
        lines: list[tuple[str, Any]] = [
            ("id", book["id"]),
            ("title", book["title"] or book["filename"]),
            ("authors", ", ".join(book["authors"])),
            ("status", book["status"]),
            ("job", book["job"] or ""),
            ("chapters", f"{plan.get('included', 0)} of {plan.get('chapters', 0)}"),
            ("expected", f"{plan.get('expected_seconds', 0) / 3600:.2f} h"),
            ("progress", f"{progress['share']:.1%}, {speed_of(progress, book['status'])}"
             if progress else ""),
            ("error", f"{book['error_code']}: {book['error_message']}" if book["error_code"]
             else ""),
        ]  # fmt: skip
        for name, value in lines:
            if value:
                self.stdout.write(f"{name:<10}{one_line(str(value), 200)}")

    def _plan(self, client: Client, chosen: Namespace) -> None:
        plan = client.books.plan(chosen.id)
        if chosen.include or chosen.exclude:
            try:
                edits = edits_of(chosen, [one["id"] for one in plan["chapters"]])
            except ValueError as error:
                raise CommandError(str(error), returncode=2) from error
            plan = client.books.edit(chosen.id, edits, plan_number=plan["plan_number"])
        if chosen.json:
            self.tell(plan)
            return
        rows = [
            (one["index"] + 1, "yes" if one["included"] else "no", one["source_chars"],
             f"{one['seconds'] / 60:.0f} min", one["language"], one["voice"],
             one["title"] if one["included"] else f"{one['title']} ({one['reason']})")
            for one in plan["chapters"]
        ]  # fmt: skip
        for line in table(("#", "read", "chars", "time", "lang", "voice", "title"), rows):
            self.stdout.write(line)
        for line in left_out_lines(plan):
            self.stdout.write(line)
        for warning in plan["warnings"]:
            self.note(f"warning: {one_line(str(warning), 200)}")

    def _start(self, client: Client, chosen: Namespace) -> None:
        self._tell_books([client.books.start(chosen.id, voice=chosen.voice)], chosen)

    def _delete(self, client: Client, chosen: Namespace) -> None:
        for one in chosen.ids:
            client.books.delete(one)
        if chosen.json:
            self.tell({"deleted": chosen.ids})

    def _files(self, client: Client, chosen: Namespace) -> None:
        files = list(client.books.files(chosen.id))
        if chosen.json:
            self.tell({"files": files})
            return
        rows = [
            (one["id"], one["kind"], one["status"], f"{one['size_bytes'] / 1e6:.1f}",
             one["error_message"])
            for one in files
        ]  # fmt: skip
        for line in table(("id", "kind", "status", "MB", "error"), rows):
            self.stdout.write(line)

    def _download(self, client: Client, chosen: Namespace) -> None:
        book = client.books.get(chosen.id)
        if chosen.follow and book["status"] not in JOB_FINAL:
            out = f" -o {chosen.out}" if chosen.out else ""
            self.come_back = [f"./tts books download {book['id']} --follow{out}"]
            client.retries = WAIT_RETRIES
            with BookBars(sys.stderr) as bars:
                book = client.books.wait(book["id"], on_update=bars.show)
            self.come_back = []
        if book["status"] in JOB_FINAL and book["status"] not in JOB_WITH_AUDIO:
            raise StepError(
                book["error_code"] or f"book_{book['status']}",
                book["error_message"] or f"The book is {book['status']}.",
            )
        path = self._fetch(client, book, chosen)
        if chosen.json:
            self.tell({"book": book["id"], "path": str(path.resolve())})
        else:
            self.stdout.write(f"{book['title'] or book['filename']} -> {path}")

    def _fetch(self, client: Client, book: Book, chosen: Namespace) -> Path:
        """Write the book's own file, or one of another kind that is made for it."""
        options: dict[str, Any] = {"preset": chosen.preset} if chosen.preset else {}
        if chosen.partial:
            options["partial"] = True
        if chosen.kind is None and not options:
            ending = str(book["options"].get("format", "m4b"))
            return client.books.download(book["id"], _target(book, chosen.out, ending))
        kind = chosen.kind or str(book["options"].get("format", "m4b"))
        made = client.books.request_file(book["id"], kind, **options)
        made = client.books.wait_file(book["id"], made["id"])
        if made["status"] == "failed":
            raise ClientError(made["error_code"], made["error_message"])
        target = _target(book, chosen.out, ENDINGS.get(kind, kind))
        return client.books.download_file(book["id"], made["id"], target)

    def _tell_books(self, books: list[Book], chosen: Namespace) -> None:
        if chosen.json:
            self.tell({"books": books})
            return
        rows = [
            (one["id"], one["status"],
             f"{one['progress']['share']:.0%}" if one["progress"] is not None else "",
             one["title"] or one["filename"], one["error_message"])
            for one in books
        ]  # fmt: skip
        for line in table(("id", "status", "done", "title", "error"), rows):
            self.stdout.write(line)


def _target(book: Book, out: Path | None, ending: str) -> Path:
    name = f"{Path(book['filename']).stem}.{ending}"
    if out is None:
        return Path(name)
    return out / name if out.is_dir() or not out.suffix else out
