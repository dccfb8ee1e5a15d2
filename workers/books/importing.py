"""Read an uploaded book and plan it; one that was to start by itself is started."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from django.core.files import File
from django.core.files.storage import default_storage

from synth.audiobooks.casting import MAX_BOOK_CHARS
from synth.audiobooks.plans import figures_of, plan_of, writable
from synth.audiobooks.start import start_wanted_book
from synth.books.book import BookRejectedError, book_from_json
from synth.models import BookSource
from synth.transitions.batches import advance_batch_of_book
from synth.transitions.files import finish_book
from ttsweb.storage import TEMPORARY_SUFFIX, delete_objects
from workers import kinds
from workers.bounded_child import Ends, Limits, run_child
from workers.kinds import retry_while_away, settle_error
from workers.process.held_claims import HeldClaim
from workers.process.worker_process import WorkerProcess

# What the reading of one book may take: a damaged or malicious one is stopped here.
BOOK_IMPORT_SECONDS = 300.0
BOOK_IMPORT_MEGABYTES = 2048  # MiB, libraries included
BOOK, COVER = "book.json", "cover"
_ENDS = Ends(
    memory=(
        "book_import_memory",
        "Reading the book needs more memory than is allowed; split the book, or remove its "
        "pictures.",
    ),
    timeout=(
        "book_import_timeout",
        "Reading the book takes longer than is allowed; split the book.",
    ),
    unreadable=(
        "book_unreadable",
        "The book cannot be read: it is damaged, or its name has a wrong extension.",
    ),
)
_MAX_JSON_PER_CHAR = 64  # blocks and escapes of a text that is all short lines


def read_in_child(
    source: Path, filename: str, folder: Path, check_wanted: Callable[[], None]
) -> dict[str, Any]:
    """Read the book in `source`, and write it to BOOK and COVER in `folder`.

    Args:
        filename: what the upload was called; its ending helps where the content does not tell.
        check_wanted: called twice a second; what it raises ends the child and is raised here.

    Returns:
        Title, authors, language, cover_type (empty without a cover) and source_chars.

    Raises:
        BookRejectedError: the file is no book that can be read.
        StarvedError: the child hardly had the processor; try again later.
        OSError: there is no room, or no process could be started; try again later.
    """
    request = {
        "input": str(source),
        "filename": filename,
        "output": str(folder / BOOK),
        "cover": str(folder / COVER),
        "max_chars": MAX_BOOK_CHARS,
    }
    output_bytes = MAX_BOOK_CHARS * _MAX_JSON_PER_CHAR + (64 << 20)
    limits = Limits(BOOK_IMPORT_SECONDS, BOOK_IMPORT_MEGABYTES, output_bytes)
    module = "workers.books.child"
    return run_child(module, request, limits, _ENDS, BookRejectedError, check_wanted=check_wanted)


logger = logging.getLogger(__name__)

COPY_BYTES = 1 << 20
COVER_TYPES = {"image/jpeg": "jpg", "image/png": "png", "image/gif": "gif", "image/webp": "webp"}


def import_book(process: WorkerProcess, claim: HeldClaim) -> None:
    """Read a claimed book and finish, fail or release it."""
    try:
        _import(process, claim)
    except Exception as error:  # noqa: BLE001
        if not process.handing_back.is_set():
            settle_error(process, claim, error, _settle_known)
            retry_while_away(partial(advance_batch_of_book, claim.pk))
    finally:
        process.held.drop(claim)


def _import(process: WorkerProcess, claim: HeldClaim) -> None:
    source = BookSource.objects.get(pk=claim.pk)
    process.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix="book-", suffix=TEMPORARY_SUFFIX, dir=process.scratch
    ) as name:
        folder = Path(name)
        with (
            default_storage.open(source.object_key) as stored,
            (folder / "upload").open("wb") as file,
        ):
            shutil.copyfileobj(stored, file, COPY_BYTES)
        said = read_in_child(folder / "upload", source.filename, folder, claim.check)
        claim.check()
        # The counts of the plan, which also show that there is one.
        book = book_from_json(json.loads((folder / BOOK).read_text(encoding="ascii")))
        figures = figures_of(plan_of(book, source.policies, source.edits))
        keys = _store(source, folder, said["cover_type"])
    facts = {
        "title": writable(said["title"])[:500],
        "authors": [writable(one)[:300] for one in said["authors"]][:50],
        "language": writable(said["language"])[:35],
        "cover_type": writable(said["cover_type"])[:100] if keys.get("cover_key") else "",
        "figures": figures,
        "error_code": "",
        "error_message": "",
        **keys,
    }
    if not retry_while_away(partial(finish_book, claim, facts)):
        delete_objects(keys.values())
        return
    logger.info("book planned: chars=%d", said["source_chars"])
    retry_while_away(partial(_go_on, claim.pk))


def _go_on(book_id: uuid.UUID) -> None:
    """Start a book that was to start by itself; one of a batch has its turn there."""
    if not advance_batch_of_book(book_id):
        start_wanted_book(book_id)


def _store(source: BookSource, folder: Path, cover_type: str) -> dict[str, str]:
    """Publish what was read; of covers those that players show."""
    stem = f"books/{source.pk}/{uuid.uuid4().hex}"
    wanted = [("book_key", BOOK, "json")]
    if cover_type in COVER_TYPES:
        wanted.append(("cover_key", COVER, COVER_TYPES[cover_type]))
    keys = {}
    for key, name, ending in wanted:
        with (folder / name).open("rb") as file:
            keys[key] = retry_while_away(
                partial(default_storage.save, f"{stem}.{ending}", File(file))
            )
    return keys


def _settle_known(claim: HeldClaim, error: Exception) -> bool | None:
    """Settle the errors that only books have."""
    if isinstance(error, BookRejectedError):
        return kinds.fail(claim, error.code[:60], writable(error.message)[:2000])
    if isinstance(error, FileNotFoundError):
        message = "The uploaded file is no longer stored; upload the book again."
        return kinds.fail(claim, "book_lost", message)
    return None
