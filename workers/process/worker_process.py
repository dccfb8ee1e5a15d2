"""Tie together what one worker process has: its name, engine, held claims, codes and threads."""

from __future__ import annotations

import enum
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from django.conf import settings
from django.db import connection

from synth.models import RenderJob
from ttsweb.log_format import log_context
from ttsweb.work import CPU, RENDER, ROLES, Kind
from workers.kinds import SITE_AWAY
from workers.process.engine_host import EngineHost
from workers.process.held_claims import (
    MOST_AT_ONCE,
    ClaimAhead,
    HeldClaim,
    HeldClaims,
    RenderedQueue,
    Room,
    SpokenVoices,
)
from workers.process.status import FrameRate, StatusReport
from workers.rendering.codes import CodesLookup
from workers.rendering.live_writer import LiveWriter
from workers.rendering.render import settle_rendered
from workers.rendering.transcriber import SpeechCheck
from workers.site.local import LocalSite

if TYPE_CHECKING:
    from synth.contract import SegmentAudio
    from synth.engine import Engine
    from synth.models import Take
    from workers.rendering.render import RenderRequest
    from workers.site.protocol import Site

# Tasks that one worker runs at once. More threads than processors do not make more files; they hold
# up whoever writes to the database.
WORKER_THREADS = min(max(os.cpu_count() or 2, 2), 4)


class Nicer(enum.IntEnum):
    """By how much a thread is nicer than its process."""

    SERVING = 10  # a tenth of a core at least, on a machine with as much to do as it can
    SPARE = 19  # next to nothing there: somebody has to help


def lower_priority(nicer: Nicer) -> None:
    """Make the calling thread nicer than its process; where threads cannot be, nothing happens.

    Not for threads that must be on time, such as the heartbeat, nor for such as start others, which
    begin as nice as they. One that holds the interpreter gets its time nevertheless: an engine's
    thread that waits for the interpreter sleeps, and so frees its core.
    """
    if sys.platform != "linux":  # elsewhere this number is the whole process's
        return
    niceness = os.getpriority(os.PRIO_PROCESS, os.getpid()) + nicer  # of the main thread
    with suppress(OSError):  # a sandbox may forbid it, and storing goes on all the same
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)


logger = logging.getLogger(__name__)
Item = TypeVar("Item")
Result = TypeVar("Result")

PAUSE_AFTER_FULL_DISK_SECONDS = 5.0
DELIVERY_THREADS = 8
MOST_AWAITED = 10_000
# Renderings that wait to be stored, half a megabyte each, before nothing more is claimed.
MOST_UNSTORED, MOST_UNSTORED_PER_SLOT = 64, 4
# How long one thread stores in what time the engine leaves, on machines that do more than this.
PATIENCE_SECONDS = 2.0
# How long a thread that computes in Python keeps the engine's threads from the interpreter; by
# itself ten times as long, in which an engine makes half a frame.
SWITCH_SECONDS = 0.0005


class WorkerProcess:
    """What the pump, the Celery tasks, the heartbeat and the shutdown of one process share.

    Args:
        role: gpu, cpu or all.
        name: unique among living workers; claims carry it.
        site: where work comes from; None is the database and the storage of this host.
        run: tells this process from others of its name.
    """

    def __init__(self, *, name: str, role: str, site: Site | None = None, run: str = "") -> None:
        self.name, self.role = name, role
        if self.has_engine_role:
            sys.setswitchinterval(SWITCH_SECONDS)
        self.host = EngineHost()
        self.held = HeldClaims()
        self.ahead = ClaimAhead()
        # Once nothing is missing of an interactive job, it passes all else on threads of its own.
        self.rendered = RenderedQueue(lambda: self._settle_soon(self.rendered))
        self.rendered_first = RenderedQueue(lambda: self._settle_soon(self.rendered_first))
        self.spoken = SpokenVoices()
        self.frame_rate = FrameRate()
        self.stopping = threading.Event()
        self.handing_back = threading.Event()  # after the drain: whatever comes is not settled
        self.wake = threading.Event()  # the pump: the engine wants more, or see `look_for_work`
        self._due: deque[Kind] = deque()  # what the pump is to look for at its next step
        self.claim_lock = threading.Lock()  # room is counted and taken in one step
        self.exports_lock = threading.Lock()  # the same for files, which wait for no segments
        self.exports_due = threading.Event()  # somebody looks for them, or is to look once more
        self.fill_due = threading.Event()  # somebody listens whose audio is to be made of takes
        self._awaited: set[str] = set()  # keys of takes that segments wait for, seen here
        self.is_isolating = False  # one suspect row runs, or waits to run, alone
        self.is_careful = False  # few segments are held, so that the end of one makes room
        self.is_engine_still = False  # it makes no progress: what is claimed for it would be lost
        self.scratch: Path = settings.DATA_DIR / "tmp"
        is_coding = self.has_engine_role and site is None
        self.codes = CodesLookup() if is_coding else None
        self.site = site or LocalSite(
            name, self.codes, self.pause_claims, self._judge, self.handing_back.is_set
        )
        publish, checkpoint = self.site.write_status, str(settings.CHECKPOINT)
        self.status = StatusReport(
            name=name, role=role, checkpoint=checkpoint, publish=publish, run=run
        )
        self.speech = SpeechCheck(self.status)
        self.live = LiveWriter(self.site.write_pieces)
        self._paused_until = 0.0
        self._pools = {
            kind: ThreadPoolExecutor(_threads_of(kind), thread_name_prefix=kind.label)
            for kind in Kind
            if kind.task
        }
        # These, and those of segments, are not nice: while they write, all other writers wait.
        self._settlers = ThreadPoolExecutor(2, thread_name_prefix="settle")  # one for each queue
        self._first_storers = ThreadPoolExecutor(WORKER_THREADS, thread_name_prefix="store-first")
        self._storers = self._serving(WORKER_THREADS, "store")
        self._spare_storer = self._serving(1, "spare-store", Nicer.SPARE)

    @property
    def has_engine_role(self) -> bool:
        return RENDER in ROLES[self.role]

    @property
    def has_cpu_role(self) -> bool:
        return CPU in ROLES[self.role]

    @property
    def holds_engine_work(self) -> bool:
        return bool(self.held.count(*(kind for kind in Kind if kind.needs_engine)))

    @property
    def may_claim(self) -> bool:
        return not self.stopping.is_set() and self.pause_is_over

    @property
    def may_claim_for_engine(self) -> bool:
        return self.may_claim and self.host.is_ready and not self.is_engine_still

    @property
    def pause_is_over(self) -> bool:
        return time.monotonic() >= self._paused_until

    def pause_claims(
        self, sentence: str, *, seconds: float = PAUSE_AFTER_FULL_DISK_SECONDS
    ) -> None:
        """Claim nothing for a moment and say why; a pause ends by itself."""
        self._paused_until = time.monotonic() + seconds
        if self.status.trouble("disk", sentence):
            logger.error("starting new work is paused: %s", sentence)

    def room(self, kind: Kind) -> int:
        """Return how many more runs, of versions, exports or deliveries, this process can begin.

        Exports that share a run share a token.
        """
        if not (self.may_claim_for_engine if kind.needs_engine else self.may_claim):
            return 0
        return max(0, _threads_of(kind) - len({claim.token for claim in self.held.of(kind)}))

    def look_for_work(self, *kinds: Kind) -> None:
        """Have the pump look at once for work of some kinds, or of all."""
        self._due.extend(kinds or Kind)
        self.wake.set()

    def note_awaited(self, content_keys: Iterable[str]) -> None:
        """Note that segments were given back until takes are made: there is room for others."""
        if len(self._awaited) > MOST_AWAITED:  # made by others meanwhile; the pump's looks find all
            self._awaited.clear()
        self._awaited.update(content_keys)
        self.wake.set()

    def note_made(self, content_keys: Iterable[str]) -> None:
        """Have the pump claim segments that waited for these takes."""
        made = self._awaited.intersection(content_keys)
        if made:
            self._awaited -= made
            self.wake.set()

    def pop_due(self) -> set[Kind]:
        """Return the kinds that `look_for_work` named since the last time."""
        return {self._due.popleft() for _ in range(len(self._due))}

    def segment_room(self) -> Room:
        """Return how many more segments this process can put to use.

        None while storing lags far behind the engine: what it rendered is held in memory.
        """
        if not self.may_claim_for_engine:
            return Room(0, 0)
        held, engine = self.held.unrendered(), self.host.engine
        unstored = len(self.rendered) + len(self.rendered_first)
        if unstored > MOST_UNSTORED + MOST_UNSTORED_PER_SLOT * engine.slots:
            return Room(0, 0)
        at_codec, unsettled = _at_codec(held, engine), self.held.count(Kind.SEGMENT) - len(held)
        return self.ahead.room(
            held,
            engine.slots,
            at_codec=at_codec,
            unstored=unsettled,
            is_urgent=self.held.has_interactive(),
        )

    def run(self, claims: Sequence[HeldClaim], work: Callable[..., None], *arguments: Any) -> None:
        """Run `work(self, *arguments)` in a thread for claims of one kind.

        What it raises is logged once; the claims are then left to expire, and the sweep frees them.
        """
        self._submit(self._pools[claims[0].kind], claims, work, *arguments)

    def note_rendered(self, claim: HeldClaim) -> None:
        """Take what the engine gives, on its own thread, and have it settled soon on another."""
        self.held.note_rendered(claim)
        left = self.held.unrendered()
        self.ahead.note_end(is_idle=not left)
        engine = self.host.engine
        at_codec, unsettled = _at_codec(left, engine), self.held.count(Kind.SEGMENT) - len(left)
        if self.ahead.is_low(len(left), engine.slots, at_codec=at_codec, unstored=unsettled):
            self.wake.set()
        job_id = claim.job_id
        # With free slots ahead nothing is gained by waiting, and retakes would come too late.
        runs_dry = len(left) < engine.slots
        is_interactive = claim.priority == RenderJob.Priority.INTERACTIVE
        if not is_interactive or any(one.job_id == job_id for one in left):
            self.rendered.add(claim, is_urgent=runs_dry)
            return
        ready = [*self.rendered.pop_job(job_id), claim]
        if self.held.count_of_job(job_id) > len(ready):  # the others are being settled
            self.rendered.wait_no_longer()
        self.rendered_first.add(*ready, is_urgent=True)

    def store_first(self, step: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Return `step` of each item that somebody waits for, several at once."""
        return list(self._first_storers.map(step, items))

    def store(self, step: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Return `step` of each item, several at once unless they would slow a busy engine down.

        Each waits for the disk often, but several at work crowd the engine's threads out of their
        cores: as long as it has enough to do and storing keeps up with it, one thread stores in the
        time that the engine leaves. The others help where that is too little, or the engine runs
        dry.
        """
        results: dict[int, Result] = {}
        left = deque(enumerate(items))

        def work() -> None:
            while True:
                try:
                    place, item = left.popleft()
                except IndexError:
                    return
                results[place] = step(item)

        at_work: list[Future[None]] = []
        is_busy = self.host.is_ready and len(self.held.unrendered()) > 2 * self.host.engine.slots
        keeps_up = len(self.rendered) < MOST_AT_ONCE // 2
        if is_busy and keeps_up and not self.stopping.is_set():
            # A transcriber has a time limit, which does not know how much of it a thread got.
            pool = self._storers if self.speech.is_on else self._spare_storer
            at_work.append(pool.submit(work))
            self.rendered.wait_urgent(PATIENCE_SECONDS, unless=at_work[0])
        threads = min(len(left), WORKER_THREADS)
        at_work += [self._storers.submit(work) for _ in range(threads)]
        for one in at_work:
            one.result()
        return [results[place] for place in range(len(items))]

    def _serving(self, threads: int, name: str, nicer: Nicer = Nicer.SERVING) -> ThreadPoolExecutor:
        """Return threads that leave the processor to the engine, where this process has one."""
        step = partial(lower_priority, nicer) if self.has_engine_role else None
        return ThreadPoolExecutor(threads, thread_name_prefix=name, initializer=step)

    def _judge(self, take: Take, request: RenderRequest, rendered: SegmentAudio) -> None:
        self.speech.judge(take, request.spec.text, rendered, language=request.language)

    def _settle_soon(self, queue: RenderedQueue) -> None:
        self._submit(self._settlers, [], settle_rendered, queue)

    def _submit(
        self,
        pool: ThreadPoolExecutor,
        claims: Sequence[HeldClaim],
        work: Callable[..., None],
        *arguments: Any,
    ) -> None:
        try:
            pool.submit(self._run, claims, work, arguments)
        except RuntimeError:  # the pool is shut: the process ends and hands its claims back
            logger.debug("not run, as the worker is stopping: claims=%d", len(claims))

    def _run(
        self, claims: Sequence[HeldClaim], work: Callable[..., None], arguments: tuple[Any, ...]
    ) -> None:
        names = f"{claims[0].kind.label}={claims[0].pk}" if len(claims) == 1 else ""
        context = log_context.set(names)
        try:
            work(self, *arguments)
        except Exception as error:
            for claim in claims:
                self.held.drop(claim)
            if isinstance(error, SITE_AWAY):
                logger.warning("leases are left to expire, the site does not answer: %s", error)
                connection.close()
            else:
                logger.exception("leases are left to expire after an unexpected error")
        finally:
            log_context.reset(context)
            if freed := {claim.kind for claim in claims} - {Kind.SEGMENT}:
                self.look_for_work(*freed)


def _threads_of(kind: Kind) -> int:
    """Return how many runs of a kind a process does at once; webhooks wait for other servers."""
    return DELIVERY_THREADS if kind is Kind.DELIVERY else WORKER_THREADS


def _at_codec(unrendered: Sequence[HeldClaim], engine: Engine) -> int:
    """Return how many of the segments have left their slots and wait for their audio."""
    asked = sum(1 for claim in unrendered if claim.future is not None)
    return asked - engine.undecoded


_current: list[WorkerProcess] = []


def set_current_process(process: WorkerProcess | None) -> None:
    """Declare what this interpreter is; None takes it back."""
    _current[:] = [] if process is None else [process]


def current_process() -> WorkerProcess | None:
    """Return the worker process, or None, with a line in the log, outside of `./tts worker`."""
    if not _current:
        logger.error("message dropped; start workers with `./tts worker`, not with celery itself")
        return None
    return _current[0]
