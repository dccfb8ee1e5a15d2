"""Make valid rows for tests; every function works with no arguments.

No object is written to the storage unless a function says so: keys name objects that may not exist.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import os
import uuid
from collections.abc import Sequence
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission, User
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db.models import Q
from django.test import Client
from django.utils import timezone

from synth.made_file import MadeFile
from synth.models import (
    Batch,
    BookFile,
    BookSource,
    Chapter,
    Export,
    ExportCues,
    JobVoice,
    Lexicon,
    LexiconEntry,
    RenderJob,
    Segment,
    Take,
    WebhookDelivery,
    WebhookEndpoint,
    WorkerStatus,
)
from synth.transitions.files import finish_exports
from synth.transitions.segments import finish_segments
from ttsweb import leases
from ttsweb.leases import Claim, LeasedModel
from voices.models import ReferenceClip, StoredClip, Voice, VoiceVersion

CODEC_FINGERPRINT = "c" * 64
# What the report of a book's file says of it, as far as its plot looks at it.
MASTERING: dict[str, float | None] = {
    "target_lufs": -18.0,
    "target_rms_dbfs": None,
    "peak_limit_dbtp": -1.0,
    "floor_limit_dbfs": -60.0,
}
# Some processes of a test make rows in one database: their names must not meet.
_numbers = itertools.count(os.getpid() * 1000 + 1)


def make_user(username: str = "", *, is_superuser: bool = False, **fields: Any) -> User:
    """Return a user with the password "password"."""
    name = username or f"user{next(_numbers)}"
    manager = get_user_model().objects
    if is_superuser:
        return manager.create_superuser(name, password="password", **fields)
    return manager.create_user(name, password="password", **fields)


def make_staff(*permissions: str, username: str = "", about: str = "") -> User:
    """Return a user who may use the admin, with permissions by their names or by what they hold."""
    user = make_user(username, is_staff=True)
    chosen = Q(codename__in=permissions)
    if about:
        chosen |= Q(codename__contains=about)
    user.user_permissions.set(Permission.objects.filter(chosen))
    return user


def logged_in(user: User | None = None) -> Client:
    """Return a client that is logged in as a user, or as a new superuser."""
    client = Client()
    client.force_login(user or make_user(is_superuser=True))
    return client


def make_worker(name: str = "gpu-1", *, seconds_ago: float = 0.0, **fields: Any) -> WorkerStatus:
    """Return the row of a ready worker that was heard of some seconds ago."""
    seen = timezone.now() - dt.timedelta(seconds=seconds_ago)
    values = {"role": "gpu", "state": "ready", "started_at": seen, "last_seen_at": seen}
    return WorkerStatus.objects.create(name=name, **(values | fields))


def make_stored_clip(content: bytes | None = None, **fields: Any) -> StoredClip:
    """Return the row of a clip with these bytes, or with bytes that no other clip has."""
    data = content if content is not None else uuid.uuid4().bytes
    fingerprint = hashlib.sha256(data).hexdigest()
    values: dict[str, Any] = {
        "original_key": f"clips/{fingerprint}/original.wav",
        "container": "wav",
        "size_bytes": len(data),
    }
    return StoredClip.objects.create(fingerprint=fingerprint, **(values | fields))


def make_version(
    voice: Voice | None = None,
    *,
    status: str = VoiceVersion.Status.READY,
    clips: int = 1,
    **fields: Any,
) -> VoiceVersion:
    """Return a version with `clips` clips; without a voice it is a job's inline reference."""
    values: dict[str, Any] = {"status": status, "number": 1}
    if voice is not None:
        values["number"] = voice.versions.count() + 1
    if status == VoiceVersion.Status.READY:
        values |= {"codec_fingerprint": CODEC_FINGERPRINT, "frames": 40}
        values["encoded_at"] = timezone.now()
    version = VoiceVersion.objects.create(voice=voice, **(values | fields))
    for index in range(clips):
        ReferenceClip.objects.create(
            version=version,
            index=index,
            stored=make_stored_clip(),
            filename=f"clip{index}.wav",
            transcript="What is said in the clip.",
        )
    return version


def make_voice(name: str = "", *, ready: bool = True, versions: int = 1, **fields: Any) -> Voice:
    """Return a voice; `ready=False` leaves its versions pending, `versions=0` gives it none."""
    values: dict[str, Any] = {
        "name": name or f"Voice {next(_numbers)}",
        "consent_statement": "The speaker agreed.",
        "consent_by": "tester",
        "consent_at": timezone.now(),
    }
    voice = Voice.objects.create(**(values | fields))
    status = VoiceVersion.Status.READY if ready else VoiceVersion.Status.PENDING
    for _ in range(versions):
        make_version(voice, status=status)
    return voice


def make_job(
    *,
    segments: int = 1,
    voice: Voice | None = None,
    version: VoiceVersion | None = None,
    **fields: Any,
) -> RenderJob:
    """Return a queued job with one chapter, `segments` queued segments and a pinned ready voice."""
    texts = [f"Sentence number {index}." for index in range(segments)]
    values: dict[str, Any] = {
        "text": " ".join(texts) or "Nothing.",
        "temperature": 0.7,
        "top_p": 0.8,
        "top_k": 30,
    }
    job = RenderJob.objects.create(**(values | fields))
    pinned = version or (voice or make_voice()).current_version
    if pinned is not None:
        JobVoice.objects.create(job=job, version=pinned)
    Chapter.objects.create(job=job)
    for text in texts:
        make_segment(job, text=text)
    job.refresh_from_db()
    return job


def make_segment(job: RenderJob | None = None, **fields: Any) -> Segment:
    """Return a queued segment at the end of a job's first chapter; counts it in the job."""
    job = job or make_job(segments=0)
    chapter = job.chapters.get(index=0)
    text = fields.pop("text", f"Sentence number {next(_numbers)}.")
    values: dict[str, Any] = {
        "index": chapter.segments.count(),
        "text": text,
        "spoken_text": text,
        "seed": next(_numbers),
        "pause_after_ms": 300,
    }
    segment = Segment.objects.create(job=job, chapter=chapter, **(values | fields))
    job.segments_total += 1
    job.save(update_fields=["segments_total"])
    return segment


def make_take(segments: Sequence[Segment] = (), **fields: Any) -> Take:
    """Return a take; it is set on `segments` without moving them."""
    key = hashlib.sha256(uuid.uuid4().bytes).hexdigest()
    values: dict[str, Any] = {
        "content_key": key,
        "codes_key": f"takes/{key}/codes.safetensors",
        "audio_key": f"takes/{key}/audio.flac",
        "frames": 20,
        "sample_rate": 44100,
        "audio_seconds": 0.93,
        "finish_reason": "end",
    }
    take = Take.objects.create(**(values | fields))
    Segment.objects.filter(pk__in=[segment.pk for segment in segments]).update(take=take)
    return take


def make_export(job: RenderJob | None = None, **fields: Any) -> Export:
    """Return a finished export of a job, or of `batch`; no file is written."""
    if job is None and "batch" not in fields:
        job = make_job()
    form = fields.get("format") or (job.format if job is not None else "zip")
    values: dict[str, Any] = {
        "format": form,
        "status": Export.Status.DONE,
        "key": f"exports/{uuid.uuid4()}.{form}",
        "size_bytes": 1000,
        "sha256": "e" * 64,
        "duration_seconds": 1.0,
    }
    return Export.objects.create(job=job, **(values | fields))


def make_endpoint(owner: User | None = None, **fields: Any) -> WebhookEndpoint:
    """Return an endpoint that wants all events."""
    values: dict[str, Any] = {"url": f"https://hooks{next(_numbers)}.example/in"}
    return WebhookEndpoint.objects.create(owner=owner or make_user(), **(values | fields))


def make_delivery(owner: User | None = None, **fields: Any) -> WebhookDelivery:
    """Return a delivery that waits; its time ends in a day."""
    values: dict[str, Any] = {
        "event": WebhookDelivery.Event.JOB_SUCCEEDED,
        "url": f"https://hooks{next(_numbers)}.example/in",
        "body": '{"type": "job.succeeded", "data": {}}',
        "give_up_at": timezone.now() + dt.timedelta(days=1),
    }
    return WebhookDelivery.objects.create(owner=owner or make_user(), **(values | fields))


def make_ended_job(
    owner: User | None = None, status: str = RenderJob.Status.SUCCEEDED, **fields: Any
) -> RenderJob:
    """Return a job with one done segment, and a file of ten bytes in the storage."""
    job = make_job(owner=owner, status=status, segments_done=1, **fields)
    make_take([job.segments.get()])
    job.segments.update(status=Segment.Status.DONE)
    key = default_storage.save(f"exports/{job.pk}.{job.format}", ContentFile(b"0123456789"))
    export = make_export(job, key=key, peaks=[0, 255])
    cues = [[job.segments.get().pk, 0, 40_000]]
    ExportCues.objects.create(export=export, sample_rate=44_100, cues=cues)
    return job


def make_batch(
    owner: User | None = None, status: str = RenderJob.Status.QUEUED, *, items: int = 2
) -> Batch:
    """Return a batch of jobs in the same state; one that has succeeded has a zip of ten bytes."""
    ended_at = timezone.now() if status in RenderJob.FINAL else None
    batch = Batch.objects.create(
        kind=Batch.Kind.TEXTS, owner=owner, status=status, ended_at=ended_at, items_total=items
    )
    for index in range(items):
        make_job(
            owner=owner,
            status=status,
            batch=batch,
            item_index=index,
            custom_id=f"item-{index + 1:05d}",
        )
    if status == RenderJob.Status.SUCCEEDED:
        key = default_storage.save(f"exports/{batch.pk}.zip", ContentFile(b"0123456789"))
        make_export(batch=batch, format="zip", key=key)
    return batch


def make_book(owner: User | None = None, **fields: Any) -> BookSource:
    """Return a planned book, of which nothing is stored."""
    values: dict[str, Any] = {
        "state": BookSource.State.PLANNED,
        "filename": "book.txt",
        "object_key": "books/none.upload",
        "size_bytes": 10,
        "sha256": "0" * 64,
        "title": "A Book",
        "options": {"voice": "Ada", "format": "wav", "priority": "bulk"},
    }
    return BookSource.objects.create(owner=owner, **(values | fields))


def make_book_file(book: BookSource, **fields: Any) -> BookFile:
    """Return a finished M4B of a started book, of ten bytes in the storage."""
    key = default_storage.save(f"exports/{uuid.uuid4().hex}.m4b", ContentFile(b"0123456789"))
    values: dict[str, Any] = {
        "kind": "m4b",
        "options": {"preset": "standard"},
        "options_digest": "0" * 64,
        "status": BookFile.Status.DONE,
        "key": key,
        "size_bytes": 10,
        "sha256": "f" * 64,
        "duration_seconds": 1.0,
        "report": {"chapters": [], "mastering": MASTERING},
    }
    assert book.job is not None
    return BookFile.objects.create(job=book.job, **(values | fields))


def make_book_batch(owner: User | None = None, **fields: Any) -> Batch:
    """Return a batch of books that has ended without any."""
    now = timezone.now()
    report = {"totals": {"books": 0}, "books": []}
    values = {"kind": Batch.Kind.BOOKS, "closed_at": now, "ended_at": now, "report": report}
    return Batch.objects.create(owner=owner or make_user(), **(values | fields))


def make_lexicon(owner: User | None = None, *entries: tuple[str, str], **fields: Any) -> Lexicon:
    """Return a lexicon with an entry for each (find, say); without an owner it is everybody's."""
    values: dict[str, Any] = {"name": f"Lexicon {next(_numbers)}", "owner": owner}
    lexicon = Lexicon.objects.create(**(values | fields))
    for index, (find, say) in enumerate(entries):
        LexiconEntry.objects.create(lexicon=lexicon, index=index, find=find, say=say)
    return lexicon


def claim_row(model: type[LeasedModel], pk: Any, *, worker: str = "w") -> Claim | None:
    """Claim a row of any kind as workers do; None when it does not wait for one."""
    return next(iter(leases.claim(leases.claimable(model), [pk], worker=worker)), None)


def finish_segment(claim: Claim, take: Take) -> bool:
    """Move one segment CLAIMED -> DONE with its take; False when the claim is gone."""
    return bool(finish_segments([(claim, take)]))


def finish_export(claim: Claim, **file: Any) -> bool:
    """Publish a file, by the fields of `MadeFile`; False when the claim is gone."""
    return bool(finish_exports({claim: MadeFile(**file)}))
