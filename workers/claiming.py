"""Claim work for this process and start on it: what the pump and the Celery tasks both call.

A row on its last attempt may be what killed the workers before. It is run alone, so that it takes
nothing with it: nothing else is claimed while it runs, and it starts when nothing else runs.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Q, QuerySet

from synth import transitions as synth_transitions
from synth.models import Segment
from synth.transitions import Claim, SegmentClaim
from voices import transitions as voice_transitions
from workers.claim_ahead import Room
from workers.held_claims import HeldClaim, Kind
from workers.outages import DATABASE_AWAY, outlast
from workers.webhook import take_deliveries
from workers.worker_process import WorkerProcess


def take_work(process: WorkerProcess) -> int:
    """Claim whatever this process has a use for; return how many rows."""
    taken = 0
    if process.has_engine_role and process.host.is_ready and not _take_suspect(process):
        taken += take_versions(process)
        taken += take_segments(process)
    if process.has_cpu_role:
        taken += take_exports(process)
        taken += take_books(process)
        taken += take_book_files(process)
        taken += take_deliveries(process)
    return taken


def take_versions(process: WorkerProcess, ids: Sequence[uuid.UUID] | None = None) -> int:
    """Claim voice versions that wait, among `ids` where given, and start; return how many."""
    with process.claim_lock:
        room = 0 if process.is_isolating else process.room(Kind.VERSION)
        if not room:
            return 0
        waiting = voice_transitions.claimable_versions().filter(attempts__lt=_last_attempt())
        if ids is not None:
            waiting = waiting.filter(pk__in=list(ids))
        chosen = list(waiting.values_list("pk", flat=True)[:room])
        claims = [claim for pk in chosen if (claim := _claim_version(process, pk))]
    return _start(process, claims)


def take_segments(process: WorkerProcess) -> int:
    """Claim segments that can be rendered, and start; return how many.

    Never more than keep the engine busy for a moment: other workers get the rest.
    """
    with process.claim_lock:
        room = Room(0, 0) if process.is_isolating else process.segment_room()
        if not room.interactive:
            return 0
        claims = _claim_segments(process, room, attempts_below=_last_attempt())
    return _start(process, claims)


def take_exports(process: WorkerProcess, ids: Sequence[uuid.UUID] | None = None) -> int:
    """Claim exports that wait, among `ids` where given, and start on them; return how many."""
    waiting = synth_transitions.claimable_exports
    return _take(process, Kind.EXPORT, waiting, synth_transitions.claim_export, ids)


def take_books(process: WorkerProcess, ids: Sequence[uuid.UUID] | None = None) -> int:
    """Claim books that wait to be read, among `ids` where given, and start; return how many."""
    waiting = synth_transitions.claimable_books
    return _take(process, Kind.BOOK, waiting, synth_transitions.claim_book, ids)


def take_book_files(process: WorkerProcess, ids: Sequence[uuid.UUID] | None = None) -> int:
    """Claim files of books that wait, among `ids` where given, and start; return how many."""
    waiting = synth_transitions.claimable_book_files
    return _take(process, Kind.BOOK_FILE, waiting, synth_transitions.claim_book_file, ids)


def _take(
    process: WorkerProcess,
    kind: Kind,
    claimable: Callable[[], QuerySet[Any]],
    claim_one: Callable[..., Claim | None],
    ids: Sequence[uuid.UUID] | None,
) -> int:
    """Claim rows of a kind that has one claim for each piece of work, and start on them."""
    with process.claim_lock:
        room = process.room(kind)
        if not room:
            return 0
        waiting = claimable()
        if ids is not None:
            waiting = waiting.filter(pk__in=list(ids))
        claims = []
        for pk in list(waiting.values_list("pk", flat=True)[:room]):
            claim = claim_one(pk, worker=process.name)
            if claim is not None:
                claims.append(process.held.add(kind, claim.pk, claim.token))
    return _start(process, claims)


def _start(process: WorkerProcess, claims: list[HeldClaim]) -> int:
    """Run the work behind fresh claims; imported here, since a CPU worker has no engine."""
    segments = [claim for claim in claims if claim.kind is Kind.SEGMENT]
    for claim in claims:
        if claim.kind is Kind.VERSION:
            from workers.encode import encode_voice_version

            process.run([claim], encode_voice_version, claim)
        elif claim.kind is Kind.EXPORT:
            from workers.assemble import assemble

            process.run([claim], assemble, claim)
        elif claim.kind is Kind.BOOK:
            from workers.book_import import import_book

            process.run([claim], import_book, claim)
        elif claim.kind is Kind.BOOK_FILE:
            from workers.book_file_task import make_book_file

            process.run([claim], make_book_file, claim)
    for _, batch in itertools.groupby(segments, key=lambda claim: claim.priority):
        from workers.render import begin_segments

        together = list(batch)
        process.run(together, begin_segments, together)
    return len(claims)


def _last_attempt() -> int:
    """Return the attempts that a row has behind it when the next one is its last."""
    return max(1, settings.MAX_ATTEMPTS - 1)


def _take_suspect(process: WorkerProcess) -> bool:
    """Run one row on its last attempt alone; True while one waits or runs, so nothing else may."""
    with process.claim_lock:
        if process.is_isolating and process.held.count(Kind.VERSION, Kind.SEGMENT):
            return True
        process.is_isolating = False
        if not process.may_claim:
            return False
        suspect = Q(attempts__gte=_last_attempt())
        versions = voice_transitions.claimable_versions().filter(suspect)
        version_id = versions.values_list("pk", flat=True).first()
        segment_id = _suspect_segment(process, suspect)
        if version_id is None and segment_id is None:
            return False
        process.is_isolating = True
        if process.held.count(Kind.VERSION, Kind.SEGMENT):
            return True  # as soon as what runs has ended
        claims: list[HeldClaim] = []
        if version_id is not None:
            claim = _claim_version(process, version_id)
            claims = [claim] if claim else []
        elif segment_id is not None:
            claims = _claim_segments(process, Room(1, 1), ids=[segment_id])
    _start(process, claims)
    return True


def _claim_version(process: WorkerProcess, version_id: uuid.UUID) -> HeldClaim | None:
    token = voice_transitions.claim_version(version_id, worker=process.name)
    return None if token is None else process.held.add(Kind.VERSION, version_id, token)


def _suspect_segment(process: WorkerProcess, suspect: Q) -> int | None:
    """Return a claimable segment on its last attempt; mostly one cheap look says that none is."""
    if not Segment.objects.filter(suspect, status=Segment.Status.QUEUED).exists():
        return None
    codec = process.host.engine.codec_fingerprint
    segments = synth_transitions.claimable_segments(codec).filter(suspect)
    return segments.values_list("pk", flat=True).first()


def _claim_segments(
    process: WorkerProcess,
    room: Room,
    *,
    ids: Sequence[int] | None = None,
    attempts_below: int | None = None,
) -> list[HeldClaim]:
    claims: list[SegmentClaim] = []
    held: list[HeldClaim] = []

    def hold(made: Sequence[SegmentClaim]) -> None:
        claims.extend(made)
        held.extend(
            process.held.add(
                Kind.SEGMENT, claim.pk, claim.token, job_id=claim.job_id, priority=claim.priority
            )
            for claim in made
        )

    try:
        synth_transitions.claim_segments(
            worker=process.name,
            limit=room.any_class,
            interactive_limit=room.interactive,
            codec_fingerprint=process.host.engine.codec_fingerprint,
            ids=ids,
            attempts_below=attempts_below,
            hold=hold,
        )
    except DATABASE_AWAY:
        if not held:
            raise
        # Not in this thread: the pump has to see for itself that the database is away.
        threading.Thread(target=_note_later, args=(claims,), daemon=True).start()
    if held:
        process.ahead.note_claims()
    return held


def _note_later(claims: Sequence[SegmentClaim]) -> None:
    """Note claims once the database is back."""
    try:
        outlast(partial(synth_transitions.note_claims, claims))
    finally:
        connection.close()
