"""Make the files that exports order: a job's takes with their pauses, or the zip of a batch."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import logging
import re
import tempfile
import time
import unicodedata
import uuid
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path

from django.core.files.storage import default_storage
from django.db.models import Prefetch, QuerySet

from synth.audio.writers import FileTooLongError
from synth.formats import FORMATS
from synth.models import Batch, Export, RenderJob, Segment, Take
from synth.transitions.batches import WITH_AUDIO, remake_items
from synth.transitions.files import finish_exports
from synth.transitions.jobs import UNFINISHED
from synth.transitions.segments import reopen_segments
from ttsweb.storage import TEMPORARY_SUFFIX, MadeFile, delete_objects
from ttsweb.work import Kind, enqueue
from ttsweb.zips import fixed_entry
from workers import kinds
from workers.audio.mastering import (
    AudioOptions,
    ExportUnwantedError,
    JoinedTakes,
    MixedRatesError,
    TakeMissingError,
    TakesChangedError,
    make_file,
)
from workers.book_files.book_audio import BookFileError
from workers.books.job import is_mastered_by_chapters, make_book
from workers.kinds import retry_while_away, settle_error
from workers.process.held_claims import URGENT_SECONDS, HeldClaim
from workers.process.worker_process import WorkerProcess

logger = logging.getLogger(__name__)

MAX_NAME_BYTES = 160  # of the 255 that file systems take
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


def name_of(item: RenderJob, taken: set[str]) -> str:
    """Return the name of an item's file, by its `custom_id`, and add what it is compared by.

    No two are alike, whatever the system thinks of a letter's case.
    """
    stem, extension = safe_stem(item.custom_id), FORMATS[item.format].extension
    name, number = f"{stem}.{extension}", (item.item_index or 0) + 1
    while (compared := unicodedata.normalize("NFKC", name).casefold()) in taken:
        name = f"{stem}-{number:05d}.{extension}"
        number += 1
    taken.add(compared)
    return name


def safe_stem(custom_id: str) -> str:
    """Return a name without what some system does not take in one; never empty, never a path."""
    text = unicodedata.normalize("NFC", custom_id)
    cut = _UNSAFE.sub("_", text).strip(".").encode()[:MAX_NAME_BYTES]
    text = cut.decode(errors="ignore").rstrip(".")
    if not text.strip("_"):
        text = "item"
    return f"_{text}" if _OF_WINDOWS.fullmatch(text) else text


def manifest_json(batch: Batch, items: Iterable[ManifestItem]) -> bytes:
    """Return the manifest as JSON: what is said of the batch, and its items in their order."""
    rows = []
    for item in items:
        row = asdict(item)
        error = {"code": row.pop("error_code"), "message": row.pop("error_message")}
        rows.append({**row, "file": item.file or None, "error": error if error["code"] else None})
    found = {"batch": str(batch.pk), "created_at": batch.created_at.isoformat(), "items": rows}
    return json.dumps(found, ensure_ascii=False, indent=1).encode()


def manifest_csv(items: Iterable[ManifestItem]) -> bytes:
    """Return the items as CSV; what a table would take for a formula begins with an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(field.name for field in fields(ManifestItem))
    for item in items:
        values = asdict(item).values()
        writer.writerow(f"'{one}" if str(one).startswith(_FORMULA) else one for one in values)
    return text.getvalue().encode()


CHUNK_BYTES = 1 << 20
ITEMS_AT_ONCE = 500  # rows in memory


class ItemsLostError(Exception):
    """The files of some items are gone or damaged; they have to be made again first."""

    def __init__(self, batch_id: uuid.UUID, item_ids: list[uuid.UUID]) -> None:
        super().__init__(f"the files of {len(item_ids)} items are no longer stored")
        self.batch_id, self.item_ids = batch_id, item_ids


class _DamagedError(Exception):
    """A stored file is not what its row says."""


def zip_batch(path: Path, batch: Batch, *, is_unwanted: Callable[[], bool]) -> MadeFile:
    """Write the zip of a batch to `path`: audio as it is stored, manifests compressed.

    Args:
        is_unwanted: asked between the pieces; True ends the work.

    Raises:
        PartsOpenError, ItemsLostError, ExportUnwantedError.
        OSError: the storage or the disk.
    """
    if batch.items.filter(status__in=UNFINISHED).exists():
        raise PartsOpenError
    taken: set[str] = set()
    rows, seconds = [], 0.0
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as target:
        for item, export in _items(batch):
            if is_unwanted():
                raise ExportUnwantedError
            if export is None:
                rows.append(_manifest_item(item))
                continue
            name = name_of(item, taken)
            try:
                _copy(target, name, export, is_unwanted)
            except (FileNotFoundError, _DamagedError) as error:
                # The later items whose files are gone too: all are made again at once.
                later = [
                    one.pk
                    for one, file in _items(batch)
                    if file is not None
                    and (one.item_index or 0) > (item.item_index or 0)
                    and not default_storage.exists(file.key)
                ]
                raise ItemsLostError(batch.pk, [item.pk, *later]) from error
            rows.append(_manifest_item(item, export, name))
            seconds += export.duration_seconds
        manifests = {
            "manifest.json": manifest_json(batch, rows),
            "manifest.csv": manifest_csv(rows),
        }
        for name, content in manifests.items():
            target.writestr(fixed_entry(name), content, zipfile.ZIP_DEFLATED)
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
    entry, digest = fixed_entry(name), hashlib.sha256()
    entry.file_size = export.size_bytes  # from here a zip of 64 bits is told apart
    with default_storage.open(export.key) as source, target.open(entry, "w") as sink:
        while chunk := source.read(CHUNK_BYTES):
            if is_unwanted():
                raise ExportUnwantedError
            digest.update(chunk)
            sink.write(chunk)
    if digest.hexdigest() != export.sha256:
        raise _DamagedError


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


OPEN = (Segment.Status.QUEUED, Segment.Status.CLAIMED)
SPEECH = RenderJob.Kind.SPEECH
OPEN_DELAY_SECONDS = 1.0
LOOK_SECONDS = 0.02  # for what somebody waits for, which a file lets pass


class PartsOpenError(Exception):
    """Segments or items were opened again; the file waits for them."""


def assemble(process: WorkerProcess, claims: Sequence[HeldClaim]) -> None:
    """Make the files of claimed exports, and finish, fail or release each of them.

    Short ones come together: their rows are read at once, and written in one transaction.
    """
    files: dict[HeldClaim, MadeFile] = {}
    try:
        for claim, export, segments in _read(claims):
            let_urgent_pass(process, claim)
            try:
                if process.handing_back.is_set():
                    break  # the shutdown gives the rest back
                if claim.is_lost:
                    continue
                files[claim] = _make(process, claim, export, segments)
            except Exception as error:  # noqa: BLE001
                settle_error(process, claim, error, _settle_known)
        _finish(process, files)
    except Exception as error:  # noqa: BLE001
        for claim in claims:
            settle_error(process, claim, error, _settle_known)
    finally:
        for claim in claims:
            process.held.drop(claim)


def let_urgent_pass(process: WorkerProcess, claim: HeldClaim) -> None:
    """Wait a moment before a file for which nobody waits, while this process has what is urgent."""
    until = time.monotonic() + URGENT_SECONDS
    if claim.priority == RenderJob.Priority.INTERACTIVE:
        return
    while process.held.has_interactive() and time.monotonic() < until:
        if process.stopping.wait(LOOK_SECONDS):
            return


def _read(claims: Sequence[HeldClaim]) -> Iterator[tuple[HeldClaim, Export, list[Segment] | None]]:
    """Yield each claim with its export and, of short texts that come together, the segments.

    That takes few queries for all of them.
    """
    rows = Export.objects.filter(pk__in=[claim.pk for claim in claims])
    rows = rows.select_related("job", "batch").defer("job__text")
    exports = {export.pk: export for export in rows}
    segments: dict[uuid.UUID, list[Segment]] = {}
    if len(claims) > 1:  # short ones
        jobs = [one.job.pk for one in exports.values() if one.job and one.job.kind == SPEECH]
        found = Segment.objects.filter(job__in=jobs).select_related("take")
        for segment in found.order_by("chapter__index", "index"):
            segments.setdefault(segment.job_id, []).append(segment)
    for claim in claims:
        export = exports.get(claim.pk)
        if export is not None:
            found_of = segments.get(export.job_id) if export.job_id is not None else None
            yield claim, export, found_of


def _make(
    process: WorkerProcess, claim: HeldClaim, export: Export, segments: list[Segment] | None
) -> MadeFile:
    """Make a file and bring it into the storage.

    Raises:
        PartsOpenError: some are to be rendered first.
    """
    if export.batch is not None:
        make: Callable[..., MadeFile] = partial(zip_batch, batch=export.batch)
    else:
        assert export.job is not None  # the table has a constraint
        make = _joining(export, export.job, segments)
    process.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix="export-", suffix=TEMPORARY_SUFFIX, dir=process.scratch
    ) as folder:
        path = Path(folder) / f"export.{export.format}"
        made = make(path, is_unwanted=lambda: claim.is_lost)
        return retry_while_away(partial(made.stored, path, export.format))


def _finish(process: WorkerProcess, files: dict[HeldClaim, MadeFile]) -> None:
    """Write that the files are there; one that cannot be written does not hold up the others."""
    if not files:
        return
    try:
        settled = retry_while_away(partial(finish_exports, files))
    except Exception as error:  # noqa: BLE001
        for claim, file in files.items():
            if len(files) > 1:  # one of them may be at fault
                _finish(process, {claim: file})
            else:
                settle_error(process, claim, error, _settle_known)
        return
    seconds = sum(files[claim].duration_seconds for claim in settled)
    logger.info("files made: count=%d seconds=%.1f", len(settled), seconds)
    delete_objects([file.key for claim, file in files.items() if claim not in settled])


def _joining(
    export: Export, job: RenderJob, segments: list[Segment] | None
) -> Callable[..., MadeFile]:
    """Return what makes a job's file of its takes."""
    rows: QuerySet[Segment] | list[Segment]
    if segments is None:
        if job.segments.filter(status__in=OPEN).exists():
            raise PartsOpenError
        if job.kind != SPEECH and is_mastered_by_chapters(export):
            return partial(make_book, export=export, job=job)
        done = Segment.objects.filter(job=job.pk, status=Segment.Status.DONE)
        rows = done.select_related("take").order_by("chapter__index", "index")
    else:
        if any(segment.status in OPEN for segment in segments):
            raise PartsOpenError
        rows = [segment for segment in segments if segment.status == Segment.Status.DONE]
    options = AudioOptions(export.format, job.sample_rate, job.bit_rate, job.loudness)
    return partial(make_file, takes=JoinedTakes(rows, speed=job.speed), options=options)


def _settle_known(claim: HeldClaim, error: Exception) -> bool | None:
    if isinstance(error, TakeMissingError):
        lost = error.segment_ids
        logger.warning("audio of takes is no longer stored, rendering again: segments=%s", lost)
        # A damaged object goes, or it would be used again.
        takes = Take.objects.filter(segments__in=lost)
        delete_objects(list(takes.values_list("audio_key", flat=True)))
        reopen_segments(lost)
        enqueue(Kind.SEGMENT, lost)
        return kinds.wait(claim)
    if isinstance(error, ItemsLostError):
        items = error.item_ids
        logger.warning("files of items are no longer stored, making them again: items=%s", items)
        return bool(remake_items(error.batch_id, items))
    if isinstance(error, (PartsOpenError, TakesChangedError)):
        return kinds.wait(claim, seconds=OPEN_DELAY_SECONDS)
    if isinstance(error, MixedRatesError):
        message = f"{error} Submit the job again, so that one model speaks the whole job."
        return kinds.fail(claim, "mixed_sample_rates", message)
    if isinstance(error, FileTooLongError):
        return kinds.fail(claim, "file_too_long", str(error))
    if isinstance(error, BookFileError):
        return kinds.fail(claim, error.code, error.message)
    return None
