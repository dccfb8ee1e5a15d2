"""Render claimed segments: ask the engine, and have its answers settled exactly once."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ttsweb.work import Kind
from workers.process.held_claims import HeldClaim, RenderedQueue
from workers.rendering.live_writer import Cutter, HeardSegment
from workers.site.protocol import Settled

if TYPE_CHECKING:
    from workers.process.worker_process import WorkerProcess  # it settles with this module


def begin_segments(process: WorkerProcess, claims: Sequence[HeldClaim]) -> None:
    """Have the takes of claimed segments reused, and hand the other segments to the engine."""
    begun = process.site.begin_segments(claims, process.host.engine)
    if process.handing_back.is_set():
        return  # the shutdown gives the claims back
    for claim in claims:
        request = begun.requests.get(claim)
        if request is None:
            process.held.drop(claim)
        else:
            claim.request = request
            _submit(process, claim)
    if begun.awaited:
        process.note_awaited(begun.awaited)
    _note_settled(process, begun.settled)


def _submit(process: WorkerProcess, claim: HeldClaim) -> None:
    """Ask the engine; its answer is dealt with in our own threads, never in the engine's.

    Where somebody listens, the samples are written while they are made.
    """
    if claim.is_lost:
        process.held.drop(claim)
        return
    request, engine = claim.request, process.host.engine
    process.spoken.note(request.clips, request.spec.references)
    heard = None
    if request.is_live and claim.job_id is not None:
        claim.take_id = uuid.uuid4()
        names = {"job_id": claim.job_id, "segment_id": claim.pk, "attempt": claim.take_id}
        cutter = Cutter(**names, sample_rate=engine.sample_rate)
        heard = HeardSegment(process.live, cutter)
    on_audio = None if heard is None else heard.take
    future = claim.future = engine.submit(request.spec, priority=claim.priority, on_audio=on_audio)
    if heard is not None:
        future.add_done_callback(heard.end)
    if claim.is_lost or process.handing_back.is_set():
        claim.stop()
    future.add_done_callback(lambda _: process.note_rendered(claim))


def settle_rendered(process: WorkerProcess, queue: RenderedQueue) -> None:
    """Keep what the engine made of segments and settle their claims, many at once."""
    claims: list[HeldClaim] = []
    try:
        claims = queue.take()
        if process.handing_back.is_set():
            return  # the shutdown gives the claims back
        wanted: list[HeldClaim] = []
        for claim in claims:  # each is asked once: another thread may say so at any moment
            if claim.is_lost:  # whoever has the row now renders it
                process.held.drop(claim)
            else:
                wanted.append(claim)
        store = process.store_first if queue is process.rendered_first else process.store
        settled = process.site.settle_segments(wanted, process.host.engine, store)
        if process.handing_back.is_set():
            return
        for claim in wanted:
            process.held.drop(claim)
        _note_settled(process, settled)
    except Exception:  # left to expire
        for claim in claims:
            process.held.drop(claim)
        raise
    finally:
        queue.end_run()


def _note_settled(process: WorkerProcess, settled: Settled) -> None:
    """Have looked at once for what follows from segments that were settled."""
    process.note_made(settled.made)
    if settled.again or settled.freed:
        process.look_for_work(Kind.SEGMENT)
    if settled.done and process.has_cpu_role:
        process.look_for_work(Kind.EXPORT)  # their files, sooner than by a message
    elif settled.done and (process.is_careful or process.is_isolating):
        process.wake.set()
