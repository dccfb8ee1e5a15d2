"""Put the files of a batch's items into one zip, with a manifest; one file at a time is read."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import unicodedata
import uuid
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from django.core.files.storage import default_storage
from django.db.models import Prefetch

from synth.formats import FORMATS
from synth.made_file import MadeFile
from synth.models import Batch, Export, RenderJob
from synth.transitions import UNFINISHED
from synth.transitions.batches import WITH_AUDIO
from workers.audio.mastering import ExportUnwantedError

MAX_NAME_BYTES = 160  # of the 255 that file systems take
MANIFEST_JSON, MANIFEST_CSV = "manifest.json", "manifest.csv"
_UNSAFE = re.compile(r"[^\w.-]+")
_OF_WINDOWS = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class ManifestItem:
    """One item: its names, its state, its file if it has one, else what went wrong."""

    custom_id: str
    job: str
    status: str
    file: str = ""
    seconds: float = 0.0
    bytes: int = 0
    sha256: str = ""
    error_code: str = ""
    error_message: str = ""


class FileNames:
    """Name files by `custom_id`s: no two alike, whatever the system thinks of a letter's case."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def name(self, custom_id: str, index: int, extension: str) -> str:
        """Return a file's name for the item at `index`, from 0."""
        stem = safe_stem(custom_id)
        name = f"{stem}.{extension}"
        number = index + 1
        while _as_compared(name) in self._taken:
            name = f"{stem}-{number:05d}.{extension}"
            number += 1
        self._taken.add(_as_compared(name))
        return name


def safe_stem(custom_id: str) -> str:
    """Return a name without what some system does not take in one; never empty, never a path."""
    text = unicodedata.normalize("NFC", custom_id)
    cut = _UNSAFE.sub("_", text).strip(".").encode()[:MAX_NAME_BYTES]
    text = cut.decode(errors="ignore").rstrip(".")
    if not text.strip("_"):
        text = "item"
    return f"_{text}" if _OF_WINDOWS.fullmatch(text) else text


def manifest_json(batch: dict[str, Any], items: Iterable[ManifestItem]) -> bytes:
    """Return the manifest as JSON: what is said of the batch, and its items in their order."""
    rows = [
        {
            **{name: value for name, value in asdict(item).items() if not name.startswith("error")},
            "file": item.file or None,
            "error": (
                {"code": item.error_code, "message": item.error_message}
                if item.error_code
                else None
            ),
        }
        for item in items
    ]
    return json.dumps({**batch, "items": rows}, ensure_ascii=False, indent=1).encode()


def manifest_csv(items: Iterable[ManifestItem]) -> bytes:
    """Return the items as CSV; what a table would take for a formula begins with an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(field.name for field in fields(ManifestItem))
    for item in items:
        writer.writerow(_cell(value) for value in asdict(item).values())
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _as_compared(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


CHUNK_BYTES = 1 << 20
ITEMS_AT_ONCE = 500  # rows in memory


class ItemsLostError(Exception):
    """The files of some items are gone or damaged; they have to be made again first."""

    def __init__(self, batch_id: uuid.UUID, item_ids: list[uuid.UUID]) -> None:
        super().__init__(f"the files of {len(item_ids)} items are no longer stored")
        self.batch_id, self.item_ids = batch_id, item_ids


class ItemsOpenError(Exception):
    """Items were opened again; the zip waits for them."""


class _DamagedError(Exception):
    """A stored file is not what its row says."""


def zip_batch(path: Path, batch: Batch, *, is_unwanted: Callable[[], bool]) -> MadeFile:
    """Write the zip of a batch to `path`: audio as it is stored, manifests compressed.

    Args:
        is_unwanted: asked between the pieces; True ends the work.

    Raises:
        ItemsOpenError, ItemsLostError, ExportUnwantedError.
        OSError: the storage or the disk.
    """
    if batch.items.filter(status__in=UNFINISHED).exists():
        raise ItemsOpenError
    names, rows, seconds = FileNames(), [], 0.0
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as target:
        for item, export in _items(batch):
            if is_unwanted():
                raise ExportUnwantedError
            if export is None:
                rows.append(_manifest_item(item))
                continue
            name = names.name(item.custom_id, item.item_index or 0, FORMATS[item.format].extension)
            try:
                _copy(target, name, export, is_unwanted)
            except (FileNotFoundError, _DamagedError) as error:
                raise ItemsLostError(batch.pk, [item.pk, *_others_lost(batch, item)]) from error
            rows.append(_manifest_item(item, export, name))
            seconds += export.duration_seconds
        about = {"batch": str(batch.pk), "created_at": batch.created_at.isoformat()}
        target.writestr(_entry(MANIFEST_JSON), manifest_json(about, rows), zipfile.ZIP_DEFLATED)
        target.writestr(_entry(MANIFEST_CSV), manifest_csv(rows), zipfile.ZIP_DEFLATED)
    return MadeFile.of(path, duration_seconds=seconds)


def _items(batch: Batch) -> Iterator[tuple[RenderJob, Export | None]]:
    """Yield the items in their order, each with its file where it should have one."""
    done = Export.objects.filter(status=Export.Status.DONE).defer("peaks", "report")
    items = batch.items.order_by("item_index").defer("text")
    for item in items.prefetch_related(Prefetch("exports", done)).iterator(ITEMS_AT_ONCE):
        files = [one for one in item.exports.all() if one.format == item.format]
        if item.status in WITH_AUDIO and not files:
            raise ItemsLostError(batch.pk, [item.pk])
        yield item, files[0] if item.status in WITH_AUDIO else None


def _copy(
    target: zipfile.ZipFile, name: str, export: Export, is_unwanted: Callable[[], bool]
) -> None:
    """Copy one file and hold it to its digest."""
    entry, digest = _entry(name), hashlib.sha256()
    entry.file_size = export.size_bytes  # from here a zip of 64 bits is told apart
    with default_storage.open(export.key) as source, target.open(entry, "w") as sink:
        while chunk := source.read(CHUNK_BYTES):
            if is_unwanted():
                raise ExportUnwantedError
            digest.update(chunk)
            sink.write(chunk)
    if digest.hexdigest() != export.sha256:
        raise _DamagedError


def _others_lost(batch: Batch, found: RenderJob) -> list[uuid.UUID]:
    """Return the later items whose files are gone too, so that all are made again at once."""
    return [
        item.pk
        for item, export in _items(batch)
        if export is not None
        and (item.item_index or 0) > (found.item_index or 0)
        and not default_storage.exists(export.key)
    ]


def _manifest_item(item: RenderJob, export: Export | None = None, name: str = "") -> ManifestItem:
    return ManifestItem(
        custom_id=item.custom_id,
        job=str(item.pk),
        status=item.status,
        file=name,
        seconds=round(export.duration_seconds, 3) if export else 0.0,
        bytes=export.size_bytes if export else 0,
        sha256=export.sha256 if export else "",
        error_code=item.error_code,
        error_message=item.error_message,
    )


def _entry(name: str) -> zipfile.ZipInfo:
    """Return an entry with a fixed date and fixed rights: same files, same zip."""
    entry = zipfile.ZipInfo(name)  # its date is the earliest that a zip can have
    entry.create_system = 3  # the one of Unix on every system
    entry.external_attr = 0o644 << 16
    return entry
