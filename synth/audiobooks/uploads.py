"""Take a book that is uploaded: its bytes are stored, its row waits for a worker; or delete it."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.core.files.base import File
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import UploadedFile
from django.db import transaction
from django.db.models import Q

from synth.accounts.limits import check_upload_bytes
from synth.audiobooks.casting import check_voices
from synth.audiobooks.plans import writable
from synth.audiobooks.start import order_from
from synth.jobs.orders import check_options, speakers_of
from synth.jobs.planning import Planner
from synth.jobs.removal import delete_job, lock_jobs
from synth.jobs.submit import Sender, make_once
from synth.models import BookSource, RenderJob
from ttsweb.refusals import SubmitRejectedError
from ttsweb.work import Kind, enqueue
from voices.access import find_voice
from voices.objects import delete_objects, delete_objects_on_commit

MAX_NAME_CHARS = 255


def upload_book(
    asked: dict[str, Any],
    sender: Sender,
    *,
    on_saved: Callable[[BookSource], None] | None = None,
) -> tuple[BookSource, bool]:
    """Store an uploaded book and have it read, or return the one that this key has made before.

    Args:
        asked: what `BookFormSerializer` returns.
        on_saved: called in the transaction that writes the book; what it raises takes it back.

    Returns:
        The book, and whether it was made by this call.

    Raises:
        SubmitRejectedError: idempotency_key_reused, book_empty, voice_not_found, voice_ambiguous,
            voice_ambiguous_name, sample_rate_unfit, bit_rate_unfit, url_*.
        KeyLimitError: the user of the API key has too many bytes stored; nothing is kept.
        OSError: the book cannot be stored; nothing is kept.
    """
    return make_once(BookSource.objects.all(), lambda: _write_book(asked, sender, on_saved), sender)


def delete_book(book: BookSource) -> None:
    """Delete a book in any state, with its job and all files."""
    with transaction.atomic():
        own = Q(book=book.pk) | Q(sampled_book=book.pk)
        lock_jobs(RenderJob.objects.filter(own))  # before its book, as everywhere
        found = BookSource.objects.select_for_update(of=("self",)).filter(pk=book.pk).first()
        if found is None:
            return
        keys = [key for key in (found.object_key, found.book_key, found.cover_key) if key]
        jobs = [job for job in (found.job, found.sample_job) if job is not None]
        found.delete()
        delete_objects_on_commit(keys)
        for job in jobs:
            delete_job(job)


def _write_book(
    asked: dict[str, Any], sender: Sender, on_saved: Callable[[BookSource], None] | None
) -> BookSource:
    _check(asked, sender.owner)
    file: UploadedFile[bytes] = asked["file"]
    sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    file.seek(0)
    book = BookSource(
        owner_id=sender.owner_id,
        api_key=sender.api_key,
        filename=_name_of(file),
        size_bytes=file.size or 0,
        sha256=sha256,
        # As JSON keeps it: numbers of speakers become texts.
        options=json.loads(json.dumps(asked["options"])),
        policies=asked["policies"],
        casting=asked.get("casting", {}),
        production=asked.get("production", {}),
        metadata=asked.get("metadata", {}),
        start_wanted=asked["start"],
        idempotency_key=sender.idempotency_key,
        body_digest=sender.body_digest,
    )
    book.object_key = default_storage.save(f"books/{book.pk}/{uuid.uuid4().hex}.upload", File(file))
    try:
        with transaction.atomic():
            book.save(force_insert=True)
            check_upload_bytes(sender.api_key)
            if on_saved is not None:
                on_saved(book)
            enqueue(Kind.BOOK, [book.pk])
    except BaseException:
        delete_objects([book.object_key])
        raise
    return book


def _check(asked: dict[str, Any], owner: AbstractBaseUser | None) -> None:
    """Refuse now what would be refused when the book is started."""
    if not asked["file"].size:
        raise SubmitRejectedError(
            "book_empty", "The file is empty; upload a file with text.", attr="file"
        )
    order = order_from(asked["options"])
    check_options(order)
    Planner(owner).history_of(order, is_book=True)
    if order.voice or order.voices:
        for voice in speakers_of(order)[0].values():
            find_voice(owner, str(voice))
    elif asked["start"]:
        raise SubmitRejectedError(
            "voice_required",
            "`start` needs a voice; give one in `voice`, or leave `start` out.",
            attr="voice",
        )
    check_voices(owner, asked.get("casting", {}))


def _name_of(file: UploadedFile[bytes]) -> str:
    """Return the file's own name, as databases take it."""
    name = PurePosixPath((file.name or "book").replace("\\", "/")).name
    return writable(name)[-MAX_NAME_CHARS:] or "book"
