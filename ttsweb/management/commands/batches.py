"""Submit, follow, show, cancel, retry and download batches over the API."""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentParser, Namespace
from itertools import islice
from pathlib import Path
from typing import Any, cast

from synth.formats import FORMATS
from ttsweb.client import JOB_FINAL, JOB_WITH_AUDIO, ApiError, Client
from ttsweb.client.http import WAIT_RETRIES
from ttsweb.client.types import Batch, BatchOptions, JobOptions
from ttsweb.commands.errors import StepError
from ttsweb.commands.remote_command import RemoteCommand
from ttsweb.counted import counted
from ttsweb.management.commands.jobs import count
from ttsweb.terminal.bars import BatchBar, ended
from ttsweb.terminal.plain_table import one_line, table

LISTED = 20


class Command(RemoteCommand):
    """`batches submit|ls|show|items|cancel|retry|download`."""

    help = (
        "Render many texts at once on the server at TTS_URL: a JSONL file with one "
        '{"custom_id": …, "text": …} on each line becomes one zip.'
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare one parser for each action."""
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        submit = actions.add_parser("submit", help="queue the items of a JSONL file")
        submit.add_argument("file", type=Path, metavar="FILE", help="JSONL file in UTF-8")
        submit.add_argument("--voice", help="name or id of the voice for items that name none")
        submit.add_argument(
            "--format", choices=tuple(FORMATS), help="audio format for items that name none"
        )
        submit.add_argument("--on-error", choices=("reject", "skip"), default="reject")
        submit.add_argument("--priority", choices=("interactive", "bulk"), default="bulk")
        submit.add_argument("--webhook", help="URL that gets a message when the batch has ended")
        submit.add_argument(
            "--follow", action="store_true", help="wait for the end, and write the zip"
        )
        submit.add_argument("--out", type=Path, help="file or folder for the zip")
        ls = actions.add_parser("ls", help="list batches, newest first")
        ls.add_argument("--status", help="one or more statuses, separated by commas")
        ls.add_argument("--limit", type=count, default=LISTED, help=f"how many at most ({LISTED})")
        show = actions.add_parser("show", help="show a batch")
        show.add_argument("id")
        items = actions.add_parser("items", help="list the items of a batch in their order")
        items.add_argument("id")
        items.add_argument("--status", help="one or more statuses, separated by commas")
        items.add_argument("--limit", type=count, help="how many at most; all if left out")
        cancel = actions.add_parser("cancel", help="cancel batches")
        cancel.add_argument("ids", nargs="+", metavar="id")
        retry = actions.add_parser("retry", help="queue incomplete items again")
        retry.add_argument("ids", nargs="+", metavar="id")
        download = actions.add_parser("download", help="download a batch's zip")
        download.add_argument("id")
        download.add_argument("-o", "--output", "--out", dest="out", type=Path)
        download.add_argument(
            "--follow", action="store_true", help="wait until the batch has ended"
        )
        for action in (submit, ls, show, items, cancel, retry, download):
            action.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, client: Client, chosen: Namespace) -> None:
        """Do the action."""
        actions = {
            "submit": self._submit,
            "ls": self._list,
            "show": self._show,
            "items": self._items,
            "cancel": self._cancel,
            "retry": self._retry,
            "download": self._download,
        }
        actions[chosen.action](client, chosen)

    def _submit(self, client: Client, chosen: Namespace) -> None:
        options: dict[str, Any] = {"on_error": chosen.on_error, "priority": chosen.priority}
        if chosen.webhook is not None:
            options["webhook"] = chosen.webhook
        defaults = {"format": chosen.format} if chosen.format is not None else {}
        try:
            batch = client.batches.submit(
                chosen.file,
                voice=chosen.voice,
                defaults=cast("JobOptions", defaults),
                **cast("BatchOptions", options),
            )
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
        self.note(f"Fetch the zip with\n  {come_back(batch, _target_of(batch, chosen.out))}")

    def _list(self, client: Client, chosen: Namespace) -> None:
        batches = list(islice(client.batches.list(status=chosen.status), chosen.limit))
        if chosen.json:
            self.tell({"batches": batches})
            return
        rows = [
            (batch["id"], batch["status"], _done(batch), batch["counts"]["failed"] or "",
             _moment(batch["created_at"]))
            for batch in batches
        ]  # fmt: skip
        for line in table(("id", "status", "items", "failed", "made at"), rows):
            self.stdout.write(line)

    def _show(self, client: Client, chosen: Namespace) -> None:
        batch = client.batches.get(chosen.id)
        if chosen.json:
            self.tell(batch)
            return
        for name, value in _described(batch):
            self.stdout.write(f"{name:<12}{one_line(str(value), 200)}")

    def _items(self, client: Client, chosen: Namespace) -> None:
        found = client.batches.items(chosen.id, status=chosen.status)
        items = list(islice(found, chosen.limit))
        if chosen.json:
            self.tell({"items": items})
            return
        rows = [
            (item["custom_id"], item["status"], item["id"], round(item["audio_seconds"], 1) or "",
             item["error_message"] or item["text_start"])
            for item in items
        ]  # fmt: skip
        for line in table(("custom_id", "status", "job", "seconds", "error or text"), rows):
            self.stdout.write(line)

    def _cancel(self, client: Client, chosen: Namespace) -> None:
        self._tell_batches([client.batches.cancel(one) for one in chosen.ids], chosen)

    def _retry(self, client: Client, chosen: Namespace) -> None:
        self._tell_batches([client.batches.retry(one) for one in chosen.ids], chosen)

    def _tell_batches(self, batches: list[Batch], chosen: Namespace) -> None:
        if chosen.json:
            self.tell({"batches": batches})
            return
        for batch in batches:
            self.stdout.write(f"{batch['id']}  {batch['status']}  {_done(batch)}")

    def _download(self, client: Client, chosen: Namespace) -> None:
        batch = client.batches.get(chosen.id)
        if chosen.follow:
            self._follow(client, batch, chosen)
            return
        self._fetch(client, batch, chosen)

    def _follow(self, client: Client, batch: Batch, chosen: Namespace) -> None:
        """Wait for a batch's end and write its zip; Ctrl-C tells how to come back."""
        self.come_back = [come_back(batch, _target_of(batch, chosen.out))]
        client.retries = WAIT_RETRIES
        with BatchBar(sys.stderr) as bar:
            if batch["status"] not in JOB_FINAL:
                batch = client.batches.wait(batch["id"], on_update=bar.show)
        self._fetch(client, batch, chosen)
        self.come_back = []

    def _fetch(self, client: Client, batch: Batch, chosen: Namespace) -> None:
        """Write a batch's zip; one that is not whole is an error, after its zip was written."""
        if batch["status"] in JOB_FINAL and batch["status"] not in JOB_WITH_AUDIO:
            self.come_back = []
            raise StepError(*_error_of(batch))
        path = client.batches.download(batch["id"], _target_of(batch, chosen.out))
        is_whole = batch["status"] == "succeeded"
        if chosen.json:
            told: dict[str, Any] = {"batch": batch, "path": str(path.resolve())}
            if not is_whole:
                told["error"] = dict(zip(("code", "message"), _error_of(batch), strict=True))
            self.tell(told)
        else:
            self.stdout.write(f"{_done(batch)} items -> {path}")
        if not is_whole:
            self.come_back = []
            self.note(": ".join(_error_of(batch)))
            sys.stdout.flush()
            raise SystemExit(1)

    def _tell_detached(self, *, as_json: bool) -> None:
        if as_json:
            self.tell({"detached": [{"come_back": line} for line in self.come_back]})
        if not self._tell_left():
            self.note("Stopped.")


def come_back(batch: Batch, target: Path) -> str:
    """Return the line that fetches the zip later."""
    return f"./tts batches download {batch['id']} --follow -o {shlex.quote(str(target))}"


def _target_of(batch: Batch, output: Path | None) -> Path:
    name = f"batch-{batch['id'][:8]}.zip"
    if output is None:
        return Path(name)
    return output / name if output.is_dir() or output.suffix.lower() != ".zip" else output


def _error_of(batch: Batch) -> tuple[str, str]:
    if batch["error_code"]:
        return batch["error_code"], batch["error_message"]
    return f"batch_{batch['status']}", f"The batch {batch['id']} is {batch['status']}."


def _described(batch: Batch) -> list[tuple[str, Any]]:
    """Return what is worth a line of a batch."""
    counts = ", ".join(f"{number} {status}" for status, number in batch["counts"].items() if number)
    error = ": ".join(_error_of(batch)) if batch["error_code"] else ""
    rows: list[tuple[str, Any]] = [
        ("id", batch["id"]),
        ("status", batch["status"]),
        ("items", f"{_done(batch)}: {counts}"),
        ("progress", f"{100 * batch['progress']:.0f} %"),
        ("time left", f"{batch['eta_seconds']:.0f} s" if batch["eta_seconds"] is not None else ""),
        ("seconds", round(batch["audio_seconds"], 1) or ""),
        ("made", _moment(batch["created_at"])),
        ("error", error),
    ]
    return [(name, value) for name, value in rows if value != ""]


def _done(batch: Batch) -> str:
    return f"{ended(batch)}/{batch['items_total']}"


def _moment(text: str) -> str:
    return text[:19].replace("T", " ")
