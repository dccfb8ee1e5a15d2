"""Take a book that is uploaded, change it, or delete it.

Of an upload the bytes are stored, and its row waits for a worker. A plan and a cover are changed
before the start, pauses and priority at any time.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.core.files.base import ContentFile, File
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import UploadedFile
from django.db import transaction
from django.db.models import Q

from synth.accounts.limits import check_upload_bytes
from synth.audiobooks.casting import check_voices
from synth.audiobooks.plans import figures_of, load_book, plan_of, writable
from synth.audiobooks.start import (
    book_gone,
    character_unknown,
    check_startable,
    order_from,
    stored_plan,
)
from synth.books.book import MAX_COVER_BYTES, MAX_COVER_PIXELS, StoredBookError, image_size
from synth.books.plan import Plan
from synth.books.plan_edits import PlanEditError
from synth.books.plan_text import unknown_characters
from synth.books.rules import Casting
from synth.jobs.orders import check_options, speakers_of
from synth.jobs.planning import Planner
from synth.jobs.removal import delete_job, lock_jobs
from synth.jobs.submit import Sender, make_once
from synth.models import PRIORITIES, BookSource, RenderJob, Segment
from synth.text.pauses import Pauses, pause_lengths
from synth.transitions.files import change_options, change_pauses, change_plan, replace_cover
from synth.transitions.jobs import change_job
from ttsweb.http.body_limit import LimitHandler
from ttsweb.refusals import SubmitRejectedError
from ttsweb.storage import delete_objects, delete_objects_on_commit
from ttsweb.work import Kind, enqueue
from voices.access import find_voice

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


MAX_EDITS = 5000


def read_plan(book: BookSource) -> Plan:
    """Return the plan of a book.

    Raises:
        SubmitRejectedError: book_not_planned, book_failed, book_gone.
    """
    if book.state != BookSource.State.PLANNED:
        check_startable(book)
    return stored_plan(book)


def edit_plan(
    book: BookSource,
    edits: Sequence[Mapping[str, Any]],
    *,
    reset: bool = False,
    plan_number: int | None = None,
    casting: Mapping[str, Any] | None = None,
    opening_credits: str | None = None,
    closing_credits: str | None = None,
    user: AbstractBaseUser,
) -> Plan:
    """Apply edits after the earlier ones, or in place of them, and return the plan.

    Args:
        plan_number: of the plan that was looked at.
        casting: as `CastingField` returns it, in place of the one so far; None keeps that.
        opening_credits, closing_credits: templates; empty for none, None keeps what there is.
        user: whose voices may be named.

    Raises:
        SubmitRejectedError: book_not_planned, book_failed, book_started, book_gone, plan_changed,
            too_many_edits, voice_not_found, voice_ambiguous_name, and those of `PlanEditError`.
    """
    check_startable(book)
    if plan_number is not None and plan_number != book.plan_number:
        raise _changed()
    both = [*([] if reset else book.edits), *edits]
    if len(both) > MAX_EDITS:
        raise SubmitRejectedError(
            "too_many_edits",
            f"The plan would have {len(both)} edits, and at most {MAX_EDITS} are allowed. "
            "Send `reset` to start again without edits.",
            attr="edits",
        )
    try:
        plan = plan_of(load_book(book), book.policies, both)
    except PlanEditError as error:
        raise SubmitRejectedError(error.code, error.message, attr="edits") from error
    except (FileNotFoundError, StoredBookError) as error:
        raise book_gone() from error
    for edit in edits:
        if edit["edit"] == "voice" and edit["voice"]:
            try:
                find_voice(user, edit["voice"])
            except SubmitRejectedError as error:
                raise error.at("edits") from error
    if casting is not None:
        check_voices(user, casting)
        if unknown := unknown_characters(plan, Casting.of(casting)):
            raise character_unknown(unknown[0])
    credits_given = {"opening_credits": opening_credits, "closing_credits": closing_credits}
    production = {**book.production, **{k: v for k, v in credits_given.items() if v is not None}}
    changed = change_plan(
        book,
        edits=both,
        figures=figures_of(plan),
        casting=book.casting if casting is None else casting,
        production={name: value for name, value in production.items() if value},
    )
    if not changed:
        found = BookSource.objects.filter(pk=book.pk).first()
        if found is not None:
            check_startable(found)
        raise _changed()
    return plan


def _changed() -> SubmitRejectedError:
    return SubmitRejectedError(
        "plan_changed",
        "Somebody else changed the plan meanwhile; get the plan again, then repeat your change.",
    )


def set_pauses(book: BookSource, changes: Mapping[str, int | None]) -> None:
    """Change some of a book's pauses; nothing is rendered, a file that is there is made again.

    Args:
        changes: lengths in ms by name; None is the usual one, what is left out stays.

    Raises:
        SubmitRejectedError: pauses_unknown.
    """
    job = book.job
    if job is None:

        def change(options: Mapping[str, Any]) -> dict[str, Any]:
            pauses = _with_changes(options.get("pauses", {}), changes)
            rest = {name: value for name, value in options.items() if name != "pauses"}
            return rest | ({"pauses": pauses} if pauses else {})

        if change_options(book.pk, change):
            return
        job = RenderJob.objects.filter(book=book.pk).first()  # it was started in this moment
        if job is None:
            return
        book.refresh_from_db(fields=["started"])
    while True:
        pauses = _with_changes(job.pauses, changes)
        if pauses == job.pauses:
            return
        lengths = _lengths(book, job, pause_lengths(Pauses.of(pauses)))
        if change_pauses(job.pk, pauses, lengths, before=job.pauses):
            return
        found = RenderJob.objects.filter(pk=job.pk).first()  # somebody else was faster
        if found is None:
            return
        job = found


def _lengths(book: BookSource, job: RenderJob, by_kind: tuple[int, ...]) -> dict[int, list[int]]:
    """Return the segments whose pause changes, by its new length.

    Raises:
        SubmitRejectedError: pauses_unknown.
    """
    kinds = [chapter.get("pauses", "") for chapter in book.started.get("chapters", [])]
    rows = Segment.objects.filter(job=job.pk).order_by()
    names = ("pk", "chapter__index", "index", "pause_after_ms")
    found: dict[int, list[int]] = defaultdict(list)
    for pk, chapter, index, so_far in rows.values_list(*names).iterator(chunk_size=2000):
        known = kinds[chapter] if chapter < len(kinds) else ""
        if index >= len(known):
            raise SubmitRejectedError(
                "pauses_unknown",
                "This book was started by an earlier version that did not record its "
                "pauses. Upload the book again; audio that was rendered is reused.",
            )
        length = by_kind[int(known[index])]
        if length != so_far:
            found[length].append(pk)
    return found


def _with_changes(pauses: Mapping[str, int], changes: Mapping[str, int | None]) -> dict[str, int]:
    both = {**pauses, **changes}
    return {name: length for name, length in both.items() if length is not None}


def set_priority(book: BookSource, priority: str) -> None:
    """Give a book, or the job that it has, a class of priority by its name.

    Raises:
        ChangeRefusedError: job_ended.
    """
    job_id = book.job_id
    if job_id is None and not change_options(book.pk, lambda one: one | {"priority": priority}):
        job_id = BookSource.objects.filter(pk=book.pk).values_list("job_id", flat=True).first()
    if job_id is not None:
        change_job(job_id, {"priority": PRIORITIES[priority]})


_ENDINGS = {"jpeg": "jpg", "png": "png", "webp": "webp"}


class CoverLimitHandler(LimitHandler):
    """Refuse a cover with too many bytes."""

    code = "cover_too_large"

    def max_bytes(self) -> int:
        return MAX_COVER_BYTES

    def sentence(self) -> str:
        return f"The cover is too large: at most {MAX_COVER_BYTES} bytes are allowed."


def change_cover(book: BookSource, content: bytes | None) -> None:
    """Give a book that was read another cover; None takes it away.

    Raises:
        SubmitRejectedError: cover_unreadable, cover_too_large, book_not_planned, book_failed,
            book_not_found.
        OSError: it cannot be stored; nothing is changed.
    """
    if book.state != BookSource.State.PLANNED:
        check_startable(book)
    key, media_type = "", ""
    if content is not None:
        size = image_size(content)
        if size is None or size.width == 0 or size.height == 0:
            raise SubmitRejectedError(
                "cover_unreadable",
                "The file is not a JPEG, PNG or WebP image; send the cover as JPEG.",
                attr="file",
            )
        if size.width * size.height > MAX_COVER_PIXELS:
            raise SubmitRejectedError(
                "cover_too_large",
                f"The cover has {size.width} x {size.height} pixels; at most {MAX_COVER_PIXELS} "
                "pixels are allowed. Send a smaller image.",
                attr="file",
            )
        media_type = f"image/{size.format}"
        name = f"books/{book.pk}/{uuid.uuid4().hex}.{_ENDINGS[size.format]}"
        key = default_storage.save(name, ContentFile(content))
    try:
        if not replace_cover(book.pk, key=key, media_type=media_type):
            raise SubmitRejectedError("book_not_found", "No book that you may see has this id.")
    except BaseException:
        delete_objects([key] if key else [])
        raise
