"""Submit, follow, show, cancel, retry and download batches over the API."""

from __future__ import annotations

import sys
from argparse import Namespace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from synth.formats import FORMATS
from ttsweb.client import JOB_FINAL, JOB_WITH_AUDIO, ApiError, Client
from ttsweb.client.types import Batch
from ttsweb.commands import noun_command as nouns
from ttsweb.commands.base import StepError
from ttsweb.commands.remote_command import download_line
from ttsweb.commands.terminal import BatchBar, ended
from ttsweb.refusals import counted

ITEM_COLUMNS: nouns.Cells = {
    "custom_id": "custom_id",
    "status": "status",
    "job": "id",
    "seconds": nouns.seconds_of,
    "error or text": lambda item: item["error_message"] or item["text_start"],
}


class Command(nouns.NounCommand):
    help = (
        "Render many texts at once on the server at TTS_URL: a JSONL file with one "
        '{"custom_id": …, "text": …} on each line becomes one zip.'
    )
    noun = "batches"
    actions: ClassVar[nouns.Actions] = {
        "submit": nouns.action(
            "queue the items of a JSONL file",
            nouns.argument("file", type=Path, metavar="FILE", help="JSONL file in UTF-8"),
            nouns.argument("--voice", help="name or id of the voice for items that name none"),
            nouns.argument(
                "--format", choices=tuple(FORMATS), help="audio format for items that name none"
            ),
            nouns.argument("--on-error", choices=("reject", "skip"), default="reject"),
            nouns.argument("--priority", choices=("interactive", "bulk"), default="bulk"),
            nouns.argument("--webhook", help="URL that gets a message when the batch has ended"),
            nouns.follow("wait for the end, and write the zip"),
            nouns.argument("--out", type=Path, help="file or folder for the zip"),
        ),
        "ls": nouns.action("list batches, newest first", nouns.STATUS, nouns.LIMIT),
        "show": nouns.action("show a batch", nouns.ID),
        "items": nouns.action(
            "list the items of a batch in their order",
            nouns.ID,
            nouns.STATUS,
            nouns.argument("--limit", type=nouns.count, help="how many at most; all if left out"),
        ),
        "cancel": nouns.each("cancel batches"),
        "retry": nouns.each("queue incomplete items again"),
        "download": nouns.action(
            "download a batch's zip",
            nouns.ID,
            nouns.OUT,
            nouns.follow("wait until the batch has ended"),
        ),
    }
    filters = ("status",)
    columns: ClassVar[nouns.Cells] = {
        "id": "id",
        "status": "status",
        "items": lambda batch: _done(batch),
        "failed": lambda batch: batch["counts"]["failed"] or "",
        "made at": nouns.moment_of("created_at"),
    }
    brief = ("id", "status", "items")
    lines: ClassVar[nouns.Cells] = {
        "id": "id",
        "status": "status",
        "items": lambda batch: f"{_done(batch)}: {nouns.counts_of(batch)}",
        "progress": lambda batch: f"{100 * batch['progress']:.0f} %",
        "time left": lambda batch: (
            f"{batch['eta_seconds']:.0f} s" if batch["eta_seconds"] is not None else ""
        ),
        "seconds": nouns.seconds_of,
        "made": nouns.moment_of("created_at"),
        "error": nouns.error_of,
    }

    def do_submit(self, client: Client, chosen: Namespace) -> None:
        options: dict[str, Any] = {"on_error": chosen.on_error, "priority": chosen.priority}
        if chosen.webhook is not None:
            options["webhook"] = chosen.webhook
        if chosen.format is not None:
            options["defaults"] = {"format": chosen.format}
        try:
            batch = client.batches.submit(chosen.file, voice=chosen.voice, **options)
        except ApiError as error:
            if error.code == "batch_items_invalid":
                for found in error.errors:
                    self.note(str(found["detail"]))
            raise
        if chosen.follow:
            self._follow(client, batch, chosen)
            return
        if chosen.json:
            self.tell(batch)
            return
        self.stdout.write(
            f"{batch['id']}  {batch['status']}  {counted(batch['items_total'], 'item')}"
        )
        line = download_line("batches", batch["id"], _target_of(batch, chosen.out))
        self.note(f"Fetch the zip with\n  {line}")

    def do_items(self, client: Client, chosen: Namespace) -> None:
        found = client.batches.items(chosen.id, status=chosen.status)
        self.print_rows("items", islice(found, chosen.limit), chosen, ITEM_COLUMNS)

    def do_download(self, client: Client, chosen: Namespace) -> None:
        batch = client.batches.get(chosen.id)
        if chosen.follow:
            self._follow(client, batch, chosen)
        else:
            self._fetch(client, batch, chosen)

    def _follow(self, client: Client, batch: Batch, chosen: Namespace) -> None:
        line = download_line("batches", batch["id"], _target_of(batch, chosen.out))
        batch = self.wait(client, batch, BatchBar(sys.stderr), line)
        self._fetch(client, batch, chosen)
        self.come_back = []

    def _fetch(self, client: Client, batch: Batch, chosen: Namespace) -> None:
        """Write a batch's zip; one that is not whole is an error, after its zip was written."""
        if batch["status"] in JOB_FINAL and batch["status"] not in JOB_WITH_AUDIO:
            raise StepError(*nouns.end_of("batch", batch))
        path = client.batches.download(batch["id"], _target_of(batch, chosen.out))
        is_whole = batch["status"] == "succeeded"
        code, message = nouns.end_of("batch", batch)
        if chosen.json:
            result: dict[str, Any] = {"batch": batch, "path": str(path.resolve())}
            if not is_whole:
                result["error"] = {"code": code, "message": message}
            self.tell(result)
        else:
            self.stdout.write(f"{_done(batch)} items -> {path}")
        if not is_whole:
            self.note(f"{code}: {message}")
            self.fail()


def _target_of(batch: Batch, out: Path | None) -> Path:
    is_file = out is not None and out.suffix.lower() == ".zip"
    return nouns.target_of(f"batch-{batch['id'][:8]}.zip", out, is_file=is_file)


def _done(batch: Batch) -> str:
    return f"{ended(batch)}/{batch['items_total']}"
