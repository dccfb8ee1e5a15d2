"""Render a folder or a manifest of books over the API: make a batch, send its files, follow it."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
import tempfile
import zipfile
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ttsweb.client import ApiError, Client, ClientError, ServerUnreachableError
from ttsweb.client.book_types import BookBatch, BookBatchEntry
from ttsweb.client.http import WAIT_RETRIES
from ttsweb.commands.base import StepError, UsageError, add_all, argument
from ttsweb.commands.job_arguments import casting_options_of, options_of, speakers_of
from ttsweb.commands.remote_command import RemoteCommand
from ttsweb.commands.terminal import BookBatchBars, describe_batch
from ttsweb.refusals import SubmitRejectedError
from ttsweb.zips import ZipLimits, ZipRefusedError, open_zip

AT_WORK = "sampling,queued,running,paused"
FINISHED = "succeeded,partial"
SHELF, FLAT = "shelf", "flat"
LAYOUT = argument(
    "--layout",
    choices=(SHELF, FLAT),
    default=SHELF,
    help="shelf: Author/Series/Title, as Audiobookshelf needs it; flat: as in the source folder",
)
_NOT_OF_BOOKS = ("deadline", "webhook")  # the webhook is the batch's
BOOK_SUFFIXES = (".epub", ".docx", ".html", ".htm", ".xhtml", ".pdf", ".txt", ".md")


def add_batch_arguments(parser: ArgumentParser) -> None:
    manifest = argument(
        "--manifest",
        type=Path,
        metavar="FILE",
        help="CSV with a header (file, voice, title and so on) or JSONL; paths are relative to it",
    )
    sample = argument(
        "--sample",
        choices=("none", "first", "hold"),
        default="none",
        help="first: render one chapter of every book first; hold: render the rest only after "
        "approval",
    )
    group = parser.add_argument_group("many books at once: a folder, or a manifest")
    add_all(group, (manifest, sample, LAYOUT))


def is_batch(chosen: Namespace) -> bool:
    return chosen.manifest is not None or any(path.is_dir() for path in chosen.files)


def check_batch_arguments(chosen: Namespace) -> None:
    """Refuse arguments that do not go together.

    Raises:
        UsageError: with the first that is wrong.
    """
    of_batch, has_manifest = is_batch(chosen), chosen.manifest is not None
    wrong = {
        "give files, or a manifest that names them, but not both": has_manifest and chosen.files,
        "the following arguments are required: FILE": not has_manifest and not chosen.files,
        "give only one folder at a time": of_batch and len(chosen.files) > 1,
        f"{chosen.out}: expected a folder, as there are many books": (
            of_batch and chosen.out.suffix and not chosen.out.is_dir()
        ),
        "--sample works only for a folder or a manifest of books": (
            not of_batch and chosen.sample != "none"
        ),
    }
    for sentence, is_so in wrong.items():
        if is_so:
            raise UsageError(sentence)


def render_books(command: RemoteCommand, client: Client, chosen: Namespace) -> None:
    """Make a batch of a folder or a manifest and send its files; the same call goes on with it.

    Raises:
        StepError: there are no books, a file is missing, or not all books have become whole.
        ClientError, OSError: the server is away, or a file cannot be read or written.
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
        # The same call goes on with what was not sent.
        command.come_back = [shlex.join(["./tts", *sys.argv[1:]])]
        _send(command, client, batch, folder)
        batch = client.book_batches.close(batch["id"])
    command.come_back = [come_back(batch["id"], chosen.out, chosen.layout)]
    if chosen.follow:
        follow_books(command, client, batch, chosen)
        return
    if chosen.json:
        command.tell(batch)
    else:
        command.stdout.write(f"{batch['id']}  {batch['status']}  {describe_batch(batch)}")
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
    is_reported = False
    with BookBatchBars(sys.stderr) as bars:
        while True:
            at_work: list[BookBatchEntry] = []
            if bars.is_drawn:
                at_work = list(client.book_batches.entries(batch["id"], state=AT_WORK))
            bars.show(batch, at_work)
            _fetch_new(client, batch, files, errors)
            if batch["ended_at"] is not None:
                break
            if batch["status"] == "to_approve" and not is_reported:
                is_reported = True
                command.note(
                    "The samples wait for approval: download them with ./tts book-batches samples "
                    f"{batch['id']}, then render the rest with ./tts book-batches approve "
                    f"{batch['id']}"
                )
            batch = client.book_batches.poll(batch["id"], 1.0)
    command.come_back = []
    _tell_end(command, client, batch, files, errors, as_json=chosen.json)


def come_back(batch_id: str, out: Path, layout: str) -> str:
    return f"./tts book-batches wait {batch_id} --out {shlex.quote(str(out))} --layout {layout}"


def _defaults(chosen: Namespace) -> dict[str, Any]:
    options = {k: v for k, v in options_of(chosen).items() if k not in _NOT_OF_BOOKS}
    options["format"] = chosen.format or "m4b"
    if chosen.voice:
        options |= speakers_of(chosen)
    return options | casting_options_of(chosen)


def entries_of_folder(folder: Path) -> list[dict[str, Any]]:
    """Return an entry for each book below a folder, in the order of their names.

    Raises:
        OSError: the folder cannot be read.
    """
    found = [
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.suffix.lower() in BOOK_SUFFIXES
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    return [{"file": name} for name in sorted(found)]


def digest_of_request(*parts: Any) -> str:
    """Return a key that is the same for the same parts, so that a request is made once."""
    digest = hashlib.sha256()
    for part in parts:
        spelled = part if isinstance(part, bytes) else json.dumps(part, sort_keys=True).encode()
        digest.update(len(spelled).to_bytes(8, "big") + spelled)
    return digest.hexdigest()


def _names(source: Path, entries: list[dict[str, Any]] | Path) -> list[str]:
    """Return the files that the entries name; a line that cannot be read is the server's to tell.

    Raises:
        StepError: the manifest cannot be read at all.
    """
    if not isinstance(entries, Path):
        return [one["file"] for one in entries]
    # Of the server's own code, so that both read a manifest alike.
    from synth.api.batches.entries import read_manifest

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
        except ServerUnreachableError:
            raise
        except ClientError as error:
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
        command.stdout.write(f"{batch['status']}  {describe_batch(batch)}")
        for one in broken:
            why = f"{one['error_code']}: {one['error_message']}" if one["error_code"] else ""
            command.note(f"{one['file']}: {one['status']}  {why}".rstrip())
        for name, why in errors.items():
            command.note(f"{name}: {why}")
    if broken or errors:
        command.fail()


LEDGER_FOLDER = ".ttsweb"  # below the folder: which books of which batch are there already


class BatchFiles:
    """The folder that a batch's books are written to.

    What is there and was not written for this batch is never written over.
    """

    def __init__(self, client: Client, batch_id: str, folder: Path, layout: str) -> None:
        self._client, self._folder, self._layout = client, folder, layout
        self._ledger = folder / LEDGER_FOLDER / f"{batch_id}.json"
        self.written: dict[str, list[str]] = self._read_ledger()

    def has(self, entry: BookBatchEntry) -> bool:
        paths = self.written.get(str(entry["index"]))
        return bool(paths) and all((self._folder / path).is_file() for path in paths or ())

    def fetch(self, entry: BookBatchEntry) -> None:
        """Write an entry's finished book.

        Raises:
            ClientError: file_exists, book_file_failed, archive_invalid, and those of the server.
            OSError: a file cannot be written.
        """
        fetch = self._fetch_shelf if self._layout == SHELF else self._fetch_flat
        self.written[str(entry["index"])] = [path.as_posix() for path in fetch(entry)]
        self._ledger.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._ledger.with_suffix(".part")
        temporary.write_text(json.dumps(self.written), encoding="utf-8")
        temporary.replace(self._ledger)

    def _fetch_flat(self, entry: BookBatchEntry) -> list[Path]:
        book = self._client.books.get(str(entry["book"]))
        ending = book["options"].get("format", "m4b")
        relative = Path(*PurePosixPath(entry["file"]).parts).with_suffix(f".{ending}")
        self._check_free(relative, entry)
        self._client.books.download(book["id"], self._folder / relative)
        return [relative]

    def _fetch_shelf(self, entry: BookBatchEntry) -> list[Path]:
        book_id = str(entry["book"])
        made = self._client.books.request_file(book_id, "shelf")
        made = self._client.books.wait_file(book_id, made["id"])
        if made["status"] == "failed":
            raise ClientError("book_file_failed", f"{entry['file']}: {made['error_message']}")
        self._ledger.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._ledger.parent, prefix="shelf-") as name:
            archive = self._client.books.download_file(book_id, made["id"], Path(name, "shelf.zip"))
            return self._unpack(archive, Path(name, "files"), entry)

    def _unpack(self, archive: Path, scratch: Path, entry: BookBatchEntry) -> list[Path]:
        with open_archive(archive) as opened:
            members = [member for member in opened.infolist() if not member.is_dir()]
            paths = [_place_of(member.filename) for member in members]
            for path in paths:
                self._check_free(path, entry)
            opened.extractall(scratch, members)
        for path in paths:
            (self._folder / path).parent.mkdir(parents=True, exist_ok=True)
            (scratch / path).replace(self._folder / path)
        return paths

    def _check_free(self, path: Path, entry: BookBatchEntry) -> None:
        mine = self.written.get(str(entry["index"]), [])
        if (self._folder / path).exists() and path.as_posix() not in mine:
            raise ClientError(
                "file_exists",
                f"{entry['file']}: {self._folder / path} exists already and is not overwritten; "
                "move it away, or give another folder with --out.",
            )

    def _read_ledger(self) -> dict[str, list[str]]:
        try:
            found: dict[str, Any] = json.loads(self._ledger.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        lists = {index: paths for index, paths in found.items() if isinstance(paths, list)}
        return {index: list(map(str, paths)) for index, paths in lists.items()}


def open_archive(archive: Path) -> zipfile.ZipFile:
    """Open what the server packed: audio, stored as it is, which does not grow."""
    limits = ZipLimits(entries=100_000, directory_bytes=1 << 26, growth_bytes=1 << 26)
    try:
        with archive.open("rb") as file:
            open_zip(file, limits).close()
    except ZipRefusedError as error:
        raise ClientError("archive_invalid", f"The server's archive {error.why}.") from error
    return zipfile.ZipFile(archive)


def _place_of(name: str) -> Path:
    """Return where a member of the archive goes; one that leads elsewhere is refused."""
    parts = PurePosixPath(name).parts
    if not parts or ".." in parts or name.startswith("/") or "\\" in name or ":" in parts[0]:
        raise ClientError("archive_invalid", f"The server's archive names a path {name!r}.")
    return Path(*parts)
