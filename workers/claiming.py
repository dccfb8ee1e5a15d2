"""Claim work for this process and start on it: what the pump and the Celery tasks both call.

A row on its last attempt may be what killed the workers before. It is run alone, so that it takes
nothing with it: nothing else is claimed while it runs, and it starts when nothing else runs.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from django.conf import settings
from django.db.models import Q

from synth import transitions as synth_transitions
from voices import transitions as voice_transitions
from workers.held_claims import HeldClaim, Kind
from workers.worker_process import WorkerProcess


def take_work(process: WorkerProcess) -> int:
    """Claim whatever this process has a use for; return how many rows."""
    taken = 0
    if process.has_engine_role and process.host.is_ready and not _take_suspect(process):
        taken += take_versions(process)
        taken += take_segments(process)
    if process.has_cpu_role:
        taken += take_exports(process)
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


def take_segments(process: WorkerProcess, ids: Sequence[int] | None = None) -> int:
    """Claim segments that can be rendered, among `ids` where given, and start; return how many.

    Never more than keep the engine busy: other workers get the rest.
    """
    with process.claim_lock:
        room = 0 if process.is_isolating else process.room(Kind.SEGMENT)
        if not room:
            return 0
        claims = _claim_segments(process, room, ids=ids, attempts_below=_last_attempt())
    return _start(process, claims)


def take_exports(process: WorkerProcess, ids: Sequence[uuid.UUID] | None = None) -> int:
    """Claim exports that wait, among `ids` where given, and start on them; return how many."""
    with process.claim_lock:
        room = process.room(Kind.EXPORT)
        if not room:
            return 0
        waiting = synth_transitions.claimable_exports()
        if ids is not None:
            waiting = waiting.filter(pk__in=list(ids))
        claims = []
        for export_id in list(waiting.values_list("pk", flat=True)[:room]):
            claim = synth_transitions.claim_export(export_id, worker=process.name)
            if claim is not None:
                claims.append(process.held.add(Kind.EXPORT, claim.pk, claim.token))
    return _start(process, claims)


def _start(process: WorkerProcess, claims: list[HeldClaim]) -> int:
    """Run the work behind fresh claims; imported here, since a CPU worker has no engine."""
    for claim in claims:
        if claim.kind is Kind.VERSION:
            from workers.encode import encode_voice_version

            process.run(claim, encode_voice_version)
        elif claim.kind is Kind.SEGMENT:
            from workers.render import begin_segment

            process.run(claim, begin_segment)
        else:
            from workers.assemble import assemble

            process.run(claim, assemble)
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
        codec = process.host.engine.codec_fingerprint
        segments = synth_transitions.claimable_segments(codec).filter(suspect)
        segment_id = segments.values_list("pk", flat=True).first()
        claims: list[HeldClaim] = []
        if version_id is None and segment_id is None:
            return False
        process.is_isolating = True
        if process.held.count(Kind.VERSION, Kind.SEGMENT):
            return True  # as soon as what runs has ended
        if version_id is not None:
            claim = _claim_version(process, version_id)
            claims = [claim] if claim else []
        elif segment_id is not None:
            claims = _claim_segments(process, 1, ids=[segment_id])
    _start(process, claims)
    return True


def _claim_version(process: WorkerProcess, version_id: uuid.UUID) -> HeldClaim | None:
    token = voice_transitions.claim_version(version_id, worker=process.name)
    return None if token is None else process.held.add(Kind.VERSION, version_id, token)


def _claim_segments(
    process: WorkerProcess,
    limit: int,
    *,
    ids: Sequence[int] | None,
    attempts_below: int | None = None,
) -> list[HeldClaim]:
    claims = synth_transitions.claim_segments(
        worker=process.name,
        limit=limit,
        codec_fingerprint=process.host.engine.codec_fingerprint,
        ids=ids,
        attempts_below=attempts_below,
    )
    return [process.held.add(Kind.SEGMENT, claim.pk, claim.token) for claim in claims]
