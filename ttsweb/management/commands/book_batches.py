"""List, show, follow, pause, approve, cancel and retry batches of books over the API."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from itertools import islice
from pathlib import Path
from typing import Any

from ttsweb.client import Client
from ttsweb.client.types import BookBatch
from ttsweb.commands.remote_command import RemoteCommand
from ttsweb.commands.render_books import add_layout_argument, come_back, follow_books
from ttsweb.counted import counted
from ttsweb.management.commands.jobs import count
from ttsweb.terminal.bars import told_of_batch
from ttsweb.terminal.plain_table import length, one_line, table

LISTED = 20
_PLAIN = ("pause", "resume", "cancel", "retry", "close")


class Command(RemoteCommand):
    """`book-batches ls|show|books|samples|pause|resume|cancel|retry|close|approve|wait|delete`."""

    help = (
        "Manage batches of books on the server at TTS_URL; ./tts render FOLDER or "
        "--manifest makes them."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare one parser for each action."""
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        ls = actions.add_parser("ls", help="list batches, newest first")
        ls.add_argument("--limit", type=count, default=LISTED, help=f"how many at most ({LISTED})")
        show = actions.add_parser("show", help="show a batch, and its summary when it has ended")
        show.add_argument("id")
        books = actions.add_parser("books", help="list the books of a batch in their order")
        books.add_argument("id")
        books.add_argument("--state", help="one or more states, separated by commas")
        samples = actions.add_parser("samples", help="download the samples of a batch's books")
        samples.add_argument("id")
        samples.add_argument(
            "--out", type=Path, default=Path("samples"), help="folder for the samples (samples)"
        )
        each = [ls, show, books, samples]
        for name in _PLAIN:
            action = actions.add_parser(name, help=f"{name} batches")
            action.add_argument("ids", nargs="+", metavar="id")
            each.append(action)
        approve = actions.add_parser(
            "approve", help="approve samples, so that the rest of their books is rendered"
        )
        approve.add_argument("id")
        approve.add_argument(
            "books", nargs="*", metavar="BOOK", help="ids of books; all if left out"
        )
        priority = actions.add_parser("priority", help="change the priority of a batch")
        priority.add_argument("id")
        priority.add_argument("priority", choices=("interactive", "bulk"))
        delete = actions.add_parser("delete", help="delete batches with their books and files")
        delete.add_argument("ids", nargs="+", metavar="id")
        wait = actions.add_parser("wait", help="wait for the end, and download the books' files")
        wait.add_argument("id")
        wait.add_argument(
            "--out",
            type=Path,
            default=Path(),
            help="folder for the files; default: the current one",
        )
        add_layout_argument(wait)
        for action in (*each, approve, priority, delete, wait):
            action.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, client: Client, chosen: Namespace) -> None:
        """Do the action."""
        if chosen.action in _PLAIN:
            act = getattr(client.book_batches, chosen.action)
            self._tell_batches([act(one) for one in chosen.ids], chosen)
            return
        actions = {
            "ls": self._list,
            "show": self._show,
            "books": self._books,
            "samples": self._samples,
            "approve": self._approve,
            "priority": self._priority,
            "delete": self._delete,
            "wait": self._wait,
        }
        actions[chosen.action](client, chosen)

    def _list(self, client: Client, chosen: Namespace) -> None:
        self._tell_batches(list(islice(client.book_batches.list(), chosen.limit)), chosen)

    def _show(self, client: Client, chosen: Namespace) -> None:
        batch = client.book_batches.get(chosen.id)
        report = client.book_batches.report(chosen.id) if batch["ended_at"] is not None else None
        if chosen.json:
            self.tell({**batch, "report": report})
            return
        counts = ", ".join(f"{n} {state}" for state, n in batch["counts"].items() if n)
        stored = ", ".join(f"{n / 1e6:.1f} MB {name}" for name, n in batch["stored_bytes"].items())
        lines: list[tuple[str, Any]] = [
            ("id", batch["id"]),
            ("name", batch["name"]),
            ("status", batch["status"]),
            ("books", counts or "none"),
            ("progress", f"{batch['progress']['share']:.1%}, {told_of_batch(batch)}"),
            ("stored", stored),
            ("made at", batch["created_at"][:19]),
            ("ended at", (batch["ended_at"] or "")[:19]),
        ]
        for name, value in lines:
            self.stdout.write(f"{name:<10}{one_line(str(value), 200)}")
        for one in batch["skipped"]:
            self.note(f"refused: {one['detail']}")
        for line in _summary_lines(report) if report is not None else ():
            self.stdout.write(line)

    def _books(self, client: Client, chosen: Namespace) -> None:
        entries = list(client.book_batches.entries(chosen.id, state=chosen.state))
        if chosen.json:
            self.tell({"entries": entries})
            return
        rows = [
            (one["index"] + 1, one["state"],
             f"{one['progress']['share']:.0%}" if one["progress"] is not None else "",
             one["book"] or "", one["title"],
             one["error_message"] or one["waits_for"])
            for one in entries
        ]  # fmt: skip
        for line in table(("#", "state", "done", "book", "title", "why"), rows):
            self.stdout.write(line)

    def _samples(self, client: Client, chosen: Namespace) -> None:
        written, waiting = [], 0
        for entry in client.book_batches.entries(chosen.id):
            sample = entry["sample"]
            if entry["book"] is None or sample is None or sample["audio_url"] is None:
                waiting += sample is not None and sample["status"] in ("queued", "running")
                continue
            name = f"{entry['index'] + 1:04d} {one_line(Path(entry['file']).stem, 80)}.mp3"
            path = client.books.download_sample(entry["book"], chosen.out / name.replace("/", "_"))
            written.append({"book": entry["book"], "path": str(path.resolve())})
        if chosen.json:
            self.tell({"samples": written, "waiting": waiting})
            return
        for one in written:
            self.stdout.write(f"{one['book']}  {one['path']}")
        if waiting:
            self.note(f"{waiting} more samples are being rendered.")

    def _approve(self, client: Client, chosen: Namespace) -> None:
        self._tell_batches([client.book_batches.approve(chosen.id, chosen.books or None)], chosen)

    def _priority(self, client: Client, chosen: Namespace) -> None:
        changed = client.book_batches.set_priority(chosen.id, chosen.priority)
        self._tell_batches([changed], chosen)

    def _delete(self, client: Client, chosen: Namespace) -> None:
        for one in chosen.ids:
            client.book_batches.delete(one)
        if chosen.json:
            self.tell({"deleted": chosen.ids})

    def _wait(self, client: Client, chosen: Namespace) -> None:
        batch = client.book_batches.get(chosen.id)
        self.come_back = [come_back(batch["id"], chosen.out, chosen.layout)]
        follow_books(self, client, batch, chosen)

    def _tell_batches(self, batches: list[BookBatch], chosen: Namespace) -> None:
        if chosen.json:
            self.tell({"book_batches": batches})
            return
        rows = [
            (one["id"], one["status"], f"{one['progress']['share']:.0%}",
             f"{one['progress']['books_ended']}/{one['progress']['books_total']}", one["name"])
            for one in batches
        ]  # fmt: skip
        for line in table(("id", "status", "done", "books", "name"), rows):
            self.stdout.write(line)


def _summary_lines(report: dict[str, Any]) -> list[str]:
    """Return the summary as lines: a table of the books, and totals."""
    rows = [
        (one["index"] + 1, one["status"], length(one["audio_seconds"]),
         one["takes_rendered"], one["takes_reused"], one["segments_failed"], one["retakes"],
         one["real_time_factor"] or "", f"{one['bytes']['total'] / 1e6:.1f}", one["title"])
        for one in report["books"]
    ]  # fmt: skip
    head = ("#", "status", "length", "rendered", "reused", "failed", "retakes", "x real time",
            "MB", "title")  # fmt: skip
    totals = report["totals"]
    end = (
        f"{counted(totals['books'], 'book')}, {length(totals['audio_seconds'])}, "
        f"{counted(totals['takes_rendered'], 'take')} rendered, {totals['takes_reused']} reused, "
        f"{counted(totals['segments_failed'], 'segment')} failed, "
        f"{totals['bytes']['total'] / 1e6:.1f} MB"
    )
    return ["", *table(head, rows), end]
