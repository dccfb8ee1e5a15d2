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
from typing import Any, TypeVar

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission, User
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db.models import Model, Q
from django.test import Client
from django.utils import timezone

from synth.models import (
    ApiKey,
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
from synth.transitions.claims import SegmentClaim, claim_segments
from synth.transitions.files import finish_exports
from synth.transitions.segments import finish_segments
from ttsweb import leases
from ttsweb.leases import Claim, LeasedModel
from ttsweb.storage import MadeFile
from voices.models import StoredClip, Transcript, Voice, VoiceVersion

Row = TypeVar("Row", bound=Model)

CODEC_FINGERPRINT = "c" * 64
# All that a key of a person may do; a worker's may do nothing else.
RIGHTS_OF_PEOPLE = [scope for scope in ApiKey.Scope.values if scope != ApiKey.Scope.WORKER]
# What the report of a book's file says of it, as far as its plot looks at it.
MASTERING: dict[str, float | None] = {
    "target_lufs": -18.0, "target_rms_dbfs": None, "peak_limit_dbtp": -1.0,
    "floor_limit_dbfs": -60.0,
}  # fmt: skip
# Some processes of a test make rows in one database: their names must not meet.
_numbers = itertools.count(os.getpid() * 1000 + 1)


def make_user(username: str = "", *, is_superuser: bool = False, **fields: Any) -> User:
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


def _make(model: type[Row], fields: dict[str, Any], **usual: Any) -> Row:
    return model._default_manager.create(**(usual | fields))


def make_worker(name: str = "gpu-1", *, seconds_ago: float = 0.0, **fields: Any) -> WorkerStatus:
    """Return the row of a ready worker that was heard of some seconds ago."""
    seen = timezone.now() - dt.timedelta(seconds=seconds_ago)
    times = {"started_at": seen, "last_seen_at": seen}
    return _make(WorkerStatus, fields, name=name, role="gpu", state="ready", **times)


def make_stored_clip(content: bytes | None = None, **fields: Any) -> StoredClip:
    """Return the row of a clip with these bytes, or with bytes that no other clip has."""
    data = content if content is not None else uuid.uuid4().bytes
    digest = hashlib.sha256(data).hexdigest()
    key = f"clips/{digest}/original.wav"
    about = {"fingerprint": digest, "original_key": key, "size_bytes": len(data)}
    return _make(StoredClip, fields, container="wav", **about)


def make_version(
    voice: Voice | None = None,
    *,
    status: str = VoiceVersion.Status.READY,
    clips: int = 1,
    **fields: Any,
) -> VoiceVersion:
    """Return a version with `clips` clips; without a voice it is a job's inline reference."""
    number = 1 if voice is None else voice.versions.count() + 1
    usual: dict[str, Any] = {"voice": voice, "status": status, "number": number}
    if status == VoiceVersion.Status.READY:
        usual |= {"codec_fingerprint": CODEC_FINGERPRINT, "frames": 40}
        usual["encoded_at"] = timezone.now()
    version = _make(VoiceVersion, fields, **usual)
    for index in range(clips):
        version.clips.create(
            index=index, stored=make_stored_clip(), filename=f"clip{index}.wav",
            transcript="What is said in the clip.",
        )  # fmt: skip
    return version


def make_voice(name: str = "", *, ready: bool = True, versions: int = 1, **fields: Any) -> Voice:
    """Return a voice; `ready=False` leaves its versions pending, `versions=0` gives it none."""
    voice = _make(
        Voice, fields, name=name or f"Voice {next(_numbers)}", consent_by="tester",
        consent_statement="The speaker agreed.", consent_at=timezone.now(),
    )  # fmt: skip
    status = VoiceVersion.Status.READY if ready else VoiceVersion.Status.PENDING
    for _ in range(versions):
        make_version(voice, status=status)
    return voice


def make_transcript(owner: User, **fields: Any) -> Transcript:
    """Return a clip that waits for a transcriber; its bytes are stored nowhere."""
    return _make(Transcript, fields, owner=owner, container="wav")


def make_job(
    *,
    segments: int = 1,
    voice: Voice | None = None,
    version: VoiceVersion | None = None,
    **fields: Any,
) -> RenderJob:
    """Return a queued job with one chapter, `segments` queued segments and a pinned ready voice."""
    texts = [f"Sentence number {index}." for index in range(segments)]
    sampling = {"temperature": 0.7, "top_p": 0.8, "top_k": 30}
    job = _make(RenderJob, fields, text=" ".join(texts) or "Nothing.", **sampling)
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
    segment = _make(
        Segment, fields, job=job, chapter=chapter, index=chapter.segments.count(), text=text,
        spoken_text=text, seed=next(_numbers), pause_after_ms=300,
    )  # fmt: skip
    job.segments_total += 1
    job.save(update_fields=["segments_total"])
    return segment


def make_take(segments: Sequence[Segment] = (), **fields: Any) -> Take:
    key = hashlib.sha256(uuid.uuid4().bytes).hexdigest()
    take = _make(
        Take, fields, content_key=key, codes_key=f"takes/{key}/codes.safetensors",
        audio_key=f"takes/{key}/audio.flac", frames=20, sample_rate=44100, audio_seconds=0.93,
        finish_reason="end",
    )  # fmt: skip
    Segment.objects.filter(pk__in=[segment.pk for segment in segments]).update(take=take)
    return take


def make_export(job: RenderJob | None = None, **fields: Any) -> Export:
    """Return a finished export of a job, or of `batch`; no file is written."""
    if job is None and "batch" not in fields:
        job = make_job()
    form = fields.get("format") or (job.format if job is not None else "zip")
    return _make(
        Export, fields, job=job, format=form, status=Export.Status.DONE, size_bytes=1000,
        key=f"exports/{uuid.uuid4()}.{form}", sha256="e" * 64, duration_seconds=1.0,
    )  # fmt: skip


def make_endpoint(owner: User | None = None, **fields: Any) -> WebhookEndpoint:
    url = f"https://hooks{next(_numbers)}.example/in"
    return _make(WebhookEndpoint, fields, owner=owner or make_user(), url=url)


def make_delivery(owner: User | None = None, **fields: Any) -> WebhookDelivery:
    return _make(
        WebhookDelivery, fields, owner=owner or make_user(),
        event=WebhookDelivery.Event.JOB_SUCCEEDED, body='{"type": "job.succeeded", "data": {}}',
        url=f"https://hooks{next(_numbers)}.example/in",
        give_up_at=timezone.now() + dt.timedelta(days=1),
    )  # fmt: skip


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
        name = f"item-{index + 1:05d}"
        make_job(owner=owner, status=status, batch=batch, item_index=index, custom_id=name)
    if status == RenderJob.Status.SUCCEEDED:
        key = default_storage.save(f"exports/{batch.pk}.zip", ContentFile(b"0123456789"))
        make_export(batch=batch, format="zip", key=key)
    return batch


def make_book(owner: User | None = None, **fields: Any) -> BookSource:
    return _make(
        BookSource, fields, owner=owner, state=BookSource.State.PLANNED, filename="book.txt",
        object_key="books/none.upload", size_bytes=10, sha256="0" * 64, title="A Book",
        options={"voice": "Ada", "format": "wav", "priority": "bulk"},
    )  # fmt: skip


def make_book_file(book: BookSource, **fields: Any) -> BookFile:
    """Return a finished M4B of a started book, of ten bytes in the storage."""
    assert book.job is not None
    key = default_storage.save(f"exports/{uuid.uuid4().hex}.m4b", ContentFile(b"0123456789"))
    return _make(
        BookFile, fields, job=book.job, kind="m4b", options={"preset": "standard"},
        options_digest="0" * 64, status=BookFile.Status.DONE, key=key, size_bytes=10,
        sha256="f" * 64, duration_seconds=1.0, report={"chapters": [], "mastering": MASTERING},
    )  # fmt: skip


def make_book_batch(owner: User | None = None, **fields: Any) -> Batch:
    times = dict.fromkeys(("closed_at", "ended_at"), timezone.now())
    report = {"totals": {"books": 0}, "books": []}
    about = {"owner": owner or make_user(), "kind": Batch.Kind.BOOKS, "report": report}
    return _make(Batch, fields, **about, **times)


def make_lexicon(owner: User | None = None, *entries: tuple[str, str], **fields: Any) -> Lexicon:
    """Return a lexicon with an entry for each (find, say); without an owner it is everybody's."""
    lexicon = _make(Lexicon, fields, name=f"Lexicon {next(_numbers)}", owner=owner)
    for index, (find, say) in enumerate(entries):
        LexiconEntry.objects.create(lexicon=lexicon, index=index, find=find, say=say)
    return lexicon


def claim(limit: int = 100, *, worker: str = "w1", **options: Any) -> list[SegmentClaim]:
    """Claim segments as a worker with the codec of these rows does."""
    return claim_segments(
        worker=worker, limit=limit, codec_fingerprint=CODEC_FINGERPRINT, **options
    )


def claim_row(model: type[LeasedModel], pk: Any, *, worker: str = "w") -> Claim | None:
    """Claim a row of any kind as workers do; None when it does not wait for one."""
    return next(iter(leases.claim(leases.claimable(model), [pk], worker=worker)), None)


def hold_row(model: type[LeasedModel], pk: Any, *, worker: str = "w") -> Claim:
    """Claim a row that waits for it."""
    held = claim_row(model, pk, worker=worker)
    assert held is not None
    return held


def finish_segment(claim: Claim, take: Take) -> bool:
    """Move one segment CLAIMED -> DONE with its take; False when the claim is gone."""
    return bool(finish_segments([(claim, take)]))


def finish_export(claim: Claim, **file: Any) -> bool:
    """Publish a file, by the fields of `MadeFile`; False when the claim is gone."""
    usual: dict[str, Any] = {"key": "k", "size_bytes": 1, "sha256": "s", "duration_seconds": 1.0}
    return bool(finish_exports({claim: MadeFile(**usual | file)}))


def stored(row: Model, *names: str) -> tuple[Any, ...]:
    """Return fields of a row as the database has them now; the row has them as well from then."""
    row.refresh_from_db()
    return tuple(getattr(row, name) for name in names)
