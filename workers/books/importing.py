"""Read an uploaded book and plan it; one that was to start by itself is started."""

from __future__ import annotations

import json
import logging
import tempfile
import uuid
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.files import File
from django.core.files.storage import default_storage

from synth.books.book import BookRejectedError
from synth.books.stored import book_from_json
from synth.bookshelf.plans import figures_of, plan_of
from synth.bookshelf.start import start_wanted_book
from synth.models import BookSource
from synth.transitions import books
from synth.transitions.book_batches import advance_batch_of_book
from ttsweb.storage import TEMPORARY_SUFFIX
from voices.objects import delete_objects
from workers import errors
from workers.books.reading import BookLimits, ReadFiles, read_in_child
from workers.errors import settle_error
from workers.process.held_claims import HeldClaim
from workers.process.outages import outlast
from workers.process.worker_process import WorkerProcess

logger = logging.getLogger(__name__)

COPY_BYTES = 1 << 20
COVER_TYPES = {"image/jpeg": "jpg", "image/png": "png", "image/gif": "gif", "image/webp": "webp"}


def import_book(process: WorkerProcess, claim: HeldClaim) -> None:
    """Read a claimed book and finish, fail or release it."""
    try:
        _import(process, claim)
    except Exception as error:
        if not process.handing_back.is_set():
            settle_error(process, claim, error, _settle_known)
            outlast(partial(advance_batch_of_book, claim.pk))
    finally:
        process.held.drop(claim)


def _import(process: WorkerProcess, claim: HeldClaim) -> None:
    source = BookSource.objects.get(pk=claim.pk)
    process.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix="book-", suffix=TEMPORARY_SUFFIX, dir=process.scratch
    ) as name:
        folder = Path(name)
        path = _fetch(source, folder / "upload")
        limits = BookLimits(
            wall_seconds=settings.BOOK_IMPORT_SECONDS,
            megabytes=settings.BOOK_IMPORT_MEGABYTES,
            max_chars=settings.MAX_BOOK_CHARS,
        )
        read = read_in_child(path, source.filename, folder, limits, check_wanted=claim.check)
        claim.check()
        figures = _figures(source, read)
        keys = _store(source, read)
    facts = {
        "title": _clean(read.facts["title"], 500),
        "authors": [_clean(one, 300) for one in read.facts["authors"]][:50],
        "language": _clean(read.facts["language"], 35),
        "cover_type": _clean(read.facts["cover_type"], 100) if keys.get("cover_key") else "",
        "figures": figures,
        "error_code": "",
        "error_message": "",
        **keys,
    }
    if not outlast(partial(books.finish_book, claim.fence, facts)):
        delete_objects(keys.values())
        return
    logger.info("book planned: chars=%d", read.facts["source_chars"])
    outlast(partial(_go_on, claim.pk))


def _go_on(book_id: uuid.UUID) -> None:
    """Start a book that was to start by itself; one of a batch has its turn there."""
    if not advance_batch_of_book(book_id):
        start_wanted_book(book_id)


def _fetch(source: BookSource, path: Path) -> Path:
    """Copy an upload to where the child can read it."""
    with default_storage.open(source.object_key) as stored, path.open("wb") as file:
        while chunk := stored.read(COPY_BYTES):
            file.write(chunk)
    return path


def _figures(source: BookSource, read: ReadFiles) -> dict[str, Any]:
    """Return the counts of the plan, which also shows that there is one."""
    book = book_from_json(json.loads(read.book.read_text(encoding="ascii")))
    return figures_of(plan_of(book, source.policies, source.edits))


def _store(source: BookSource, read: ReadFiles) -> dict[str, str]:
    """Publish what was read; of covers those that players show."""
    stem = f"books/{source.pk}/{uuid.uuid4().hex}"
    keys = {}
    with read.book.open("rb") as file:
        keys["book_key"] = default_storage.save(f"{stem}.json", File(file))
    ending = COVER_TYPES.get(read.facts["cover_type"])
    if read.cover is not None and ending is not None:
        with read.cover.open("rb") as file:
            keys["cover_key"] = default_storage.save(f"{stem}.{ending}", File(file))
    return keys


def _clean(text: str, most: int) -> str:
    """Return a text as databases take it."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()[:most]


def _settle_known(claim: HeldClaim, error: Exception) -> bool | None:
    """Settle the errors that only books have."""
    if isinstance(error, BookRejectedError):
        return errors.fail(claim, error.code[:60], _clean(error.message, 2000))
    if isinstance(error, FileNotFoundError):
        message = "The uploaded file is no longer stored; upload the book again."
        return errors.fail(claim, "book_lost", message)
    return None
