"""List, show, follow, pause, approve, cancel and retry batches of books over the API."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import ClassVar

from ttsweb.client import Client
from ttsweb.client.book_types import BookBatchReport
from ttsweb.commands import noun_command as nouns
from ttsweb.commands.render_books import LAYOUT, come_back, follow_books
from ttsweb.commands.terminal import describe_batch, length, one_line
from ttsweb.refusals import counted

ENTRY_COLUMNS: nouns.Cells = {
    "#": lambda entry: entry["index"] + 1,
    "state": "state",
    "done": nouns.share_of,
    "book": "book",
    "title": "title",
    "why": lambda entry: entry["error_message"] or entry["waits_for"],
}

REPORT_COLUMNS: nouns.Cells = {
    "#": lambda book: book["index"] + 1,
    "status": "status",
    "length": lambda book: length(book["audio_seconds"]),
    "rendered": "takes_rendered",
    "reused": "takes_reused",
    "failed": "segments_failed",
    "retakes": "retakes",
    "x real time": lambda book: book["real_time_factor"] or "",
    "MB": lambda book: f"{book['bytes']['total'] / 1e6:.1f}",
    "title": "title",
}


class Command(nouns.NounCommand):
    help = (
        "Manage batches of books on the server at TTS_URL; ./tts render FOLDER or "
        "--manifest makes them."
    )
    noun = "book_batches"
    actions: ClassVar[nouns.Actions] = {
        "ls": nouns.action("list batches, newest first", nouns.LIMIT),
        "show": nouns.action("show a batch, and its summary when it has ended", nouns.ID),
        "books": nouns.action(
            "list the books of a batch in their order",
            nouns.ID,
            nouns.argument("--state", help="one or more states, separated by commas"),
        ),
        "samples": nouns.action(
            "download the samples of a batch's books",
            nouns.ID,
            nouns.argument(
                "--out", type=Path, default=Path("samples"), help="folder for the samples (samples)"
            ),
        ),
        **{
            name: nouns.each(f"{name} batches")
            for name in ("pause", "resume", "cancel", "retry", "close")
        },
        "approve": nouns.action(
            "approve samples, so that the rest of their books is rendered",
            nouns.ID,
            nouns.argument(
                "books", nargs="*", metavar="BOOK", help="ids of books; all if left out"
            ),
        ),
        "priority": nouns.action(
            "change the priority of a batch",
            nouns.ID,
            nouns.argument("priority", choices=("interactive", "bulk")),
        ),
        "delete": nouns.each("delete batches with their books and files"),
        "wait": nouns.action(
            "wait for the end, and download the books' files",
            nouns.ID,
            nouns.argument(
                "--out",
                type=Path,
                default=Path(),
                help="folder for the files; default: the current one",
            ),
            LAYOUT,
        ),
    }
    columns: ClassVar[nouns.Cells] = {
        "id": "id",
        "status": "status",
        "done": nouns.share_of,
        "books": lambda batch: "{books_ended}/{books_total}".format_map(batch["progress"]),
        "name": "name",
    }
    lines: ClassVar[nouns.Cells] = {
        "id": "id",
        "name": "name",
        "status": "status",
        "books": lambda batch: nouns.counts_of(batch) or "none",
        "progress": lambda batch: f"{batch['progress']['share']:.1%}, {describe_batch(batch)}",
        "stored": lambda batch: ", ".join(
            f"{n / 1e6:.1f} MB {name}" for name, n in batch["stored_bytes"].items()
        ),
        "made at": nouns.moment_of("created_at"),
        "ended at": nouns.moment_of("ended_at"),
    }

    def do_show(self, client: Client, chosen: Namespace) -> None:
        batch = client.book_batches.get(chosen.id)
        report = client.book_batches.report(chosen.id) if batch["ended_at"] is not None else None
        self.show({**batch, "report": report}, chosen)
        if chosen.json:
            return
        for one in batch["skipped"]:
            self.note(f"refused: {one['detail']}")
        for line in _summary_lines(report) if report is not None else ():
            self.stdout.write(line)

    def do_books(self, client: Client, chosen: Namespace) -> None:
        entries = client.book_batches.entries(chosen.id, state=chosen.state)
        self.print_rows("entries", entries, chosen, ENTRY_COLUMNS)

    def do_samples(self, client: Client, chosen: Namespace) -> None:
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

    def do_approve(self, client: Client, chosen: Namespace) -> None:
        approved = client.book_batches.approve(chosen.id, chosen.books or None)
        self.print_acted([approved], chosen)

    def do_priority(self, client: Client, chosen: Namespace) -> None:
        self.print_acted([client.book_batches.set_priority(chosen.id, chosen.priority)], chosen)

    def do_wait(self, client: Client, chosen: Namespace) -> None:
        batch = client.book_batches.get(chosen.id)
        self.come_back = [come_back(batch["id"], chosen.out, chosen.layout)]
        follow_books(self, client, batch, chosen)


def _summary_lines(report: BookBatchReport) -> list[str]:
    totals = report["totals"]
    end = (
        f"{counted(totals['books'], 'book')}, {length(totals['audio_seconds'])}, "
        f"{counted(totals['takes_rendered'], 'take')} rendered, {totals['takes_reused']} reused, "
        f"{counted(totals['segments_failed'], 'segment')} failed, "
        f"{totals['bytes']['total'] / 1e6:.1f} MB"
    )
    return ["", *nouns.lines_of_rows(REPORT_COLUMNS, report["books"]), end]
