"""Equal segments are rendered once: the others wait for that take, across jobs and workers."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.db import IntegrityError, connection
from django.utils import timezone

from synth.engine import Engine
from synth.models import RenderJob, Segment, Take
from synth.transitions.claims import begin_takes
from synth.transitions.jobs import cancel_job
from synth.transitions.segments import cancel_segment, free_lost_segments
from tests.workers.conftest import MiniatureProcess
from tests.workers.pairs import Pair, new_voice, submit, wait_encoded, wait_for
from ttsweb import leases
from ttsweb.leases import Claim
from ttsweb.work import Kind
from voices.models import Voice
from workers.process.claiming import take, take_segments

BULK = RenderJob.Priority.BULK


class CountedEngine:
    """The real engine, which counts what it is asked to render."""

    def __init__(self, engine: Engine, **changes: Any) -> None:
        self._engine, self.rendered = engine, 0
        self.engine_class = replace(engine.engine_class, **changes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, *given: Any, **named: Any) -> Any:
        self.rendered += 1
        return self._engine.submit(*given, **named)


def counted(process: MiniatureProcess, **changes: Any) -> CountedEngine:
    """Count what a process asks its engine for, from now on."""
    engine = CountedEngine(process.host.engine, **changes)
    process.host._engine = engine  # type: ignore[assignment] # it is one in all that is used here
    return engine


@pytest.fixture
def other(engine: Engine) -> Iterator[MiniatureProcess]:
    """A second worker on the same rows."""
    yield MiniatureProcess(engine, name="other", role="all")


def encoded(process: MiniatureProcess) -> None:
    take(process, Kind.VERSION)
    process.run_all()


def work(*processes: MiniatureProcess) -> None:
    """Let processes claim and work in turns until nothing is left."""
    while any([take_segments(one) for one in processes]):
        for one in processes:
            one.run_all()


def text_of(sentences: int, times: int) -> str:
    """A text of so many different sentences, each so often: every one is a paragraph."""
    return "\n\n".join(f"Ox {index}." for _ in range(times) for index in range(sentences))


def counts(job: RenderJob) -> tuple[str, int, int]:
    """The state of all its segments, and how many takes were rendered and reused."""
    job.refresh_from_db()
    (state,) = set(job.segments.values_list("status", flat=True))
    return state, job.takes_rendered, job.takes_reused


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("sentences", "times"), [(5, 8), (3, 8)])
def test_a_job_renders_each_of_its_sentences_once(
    process: MiniatureProcess, voice: Voice, sentences: int, times: int
) -> None:
    encoded(process)
    job = submit(voice, text=text_of(sentences, times))
    segments = job.segments.count()
    engine = counted(process)

    work(process)

    assert segments == sentences * times
    assert engine.rendered == sentences
    assert counts(job) == ("done", sentences, segments - sentences)
    assert not job.segments.exclude(attempts=1).exists()


@pytest.mark.django_db(transaction=True)
def test_two_jobs_on_two_workers_render_a_sentence_once(
    process: MiniatureProcess, other: MiniatureProcess, voice: Voice
) -> None:
    encoded(process)
    engines = [counted(one) for one in (process, other)]
    first, second = (submit(voice, text="Ox."), submit(voice, text="Ox."))
    take_segments(process)
    process.run_next()  # begun, and not settled
    take_segments(other)
    other.run_all()
    waits = Segment.objects.get(job=second)

    assert (waits.status, waits.attempts) == ("queued", 0)
    assert waits.content_key == Segment.objects.get(job=first).content_key != ""
    assert not take_segments(other)  # as long as the first one renders
    process.run_all()
    work(other)

    assert [engine.rendered for engine in engines] == [1, 0]
    assert counts(first) == ("done", 1, 0)
    assert counts(second) == ("done", 0, 1)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("end", ["lease", "released", "cancelled"])
def test_one_that_waited_renders_when_the_other_does_not_come_to_an_end(
    process: MiniatureProcess, other: MiniatureProcess, voice: Voice, end: str
) -> None:
    encoded(process)
    engine = counted(other)
    first, second = (submit(voice, text="Ox."), submit(voice, text="Ox."))
    take_segments(process)
    process.run_next()
    take_segments(other)
    other.run_all()
    (claim,) = process.held.of(Kind.SEGMENT)
    fence = Claim(claim.pk, claim.token)

    if end == "lease":  # its worker is gone
        past = timezone.now() - dt.timedelta(seconds=1)
        Segment.objects.filter(pk=claim.pk).update(lease_until=past)
        free_lost_segments(leases.expired(timezone.now()))
    elif end == "released":
        leases.hand_back(Segment, fence)
    else:
        cancel_job(first.pk)
        cancel_segment(fence)
    work(other)

    assert engine.rendered == 1
    assert counts(second)[0] == "done"
    assert counts(first)[0] == ("cancelled" if end == "cancelled" else "done")
    assert Take.objects.count() == 1
    claim.abandon()
    process.run_all()


@pytest.mark.django_db(transaction=True)
def test_a_worker_of_another_class_renders_its_own_take(
    process: MiniatureProcess, other: MiniatureProcess, voice: Voice
) -> None:
    encoded(process)
    engines = [counted(process), counted(other, backend="another")]
    jobs = [submit(voice, text=text_of(1, 3)) for _ in range(2)]
    first, second = (list(job.segments.all()) for job in jobs)
    Segment.objects.filter(job=jobs[1]).update(status="cancelled")  # until the first job is done
    work(process)
    Segment.objects.filter(job=jobs[1]).update(status="queued")
    work(other)

    assert [engine.rendered for engine in engines] == [1, 1]
    takes = [set(Segment.objects.filter(pk__in=[s.pk for s in some]).values_list("take", flat=True))
             for some in (first, second)]  # fmt: skip
    assert [len(some) for some in takes] == [1, 1] and takes[0] != takes[1]


@pytest.mark.django_db(transaction=True)
def test_two_classes_of_workers_come_to_an_end_side_by_side(
    process: MiniatureProcess, other: MiniatureProcess, voice: Voice
) -> None:
    encoded(process)
    engines = [counted(process), counted(other, backend="another")]
    jobs = [submit(voice, text=text_of(2, 6)) for _ in range(2)]

    work(process, other)

    assert [counts(job)[0] for job in jobs] == ["done", "done"]
    assert all(engine.rendered <= 2 for engine in engines)


@pytest.mark.django_db(transaction=True)
def test_an_interactive_job_does_not_wait_for_bulk_work(
    process: MiniatureProcess, other: MiniatureProcess, voice: Voice
) -> None:
    encoded(process)
    engine = counted(other)
    bulk = submit(voice, text="Ox.", priority=BULK)
    take_segments(process)
    process.run_next()
    urgent = [submit(voice, text="Ox.") for _ in range(2)]
    take_segments(other)
    other.run_next()

    assert engine.rendered == 1  # the second one waits for the first
    other.run_all()
    work(other)
    process.run_all()
    work(other)

    assert engine.rendered == 1
    assert {counts(job)[0] for job in (bulk, *urgent)} == {"done"}
    assert Take.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_another_seed_is_another_take(process: MiniatureProcess, voice: Voice) -> None:
    encoded(process)
    engine = counted(process)
    jobs = [submit(voice, text="Ox.", seed=seed) for seed in (0, 1)]

    work(process)

    assert engine.rendered == 2
    assert [counts(job) for job in jobs] == [("done", 1, 0)] * 2


@pytest.mark.django_db(transaction=True)
def test_of_many_workers_that_begin_a_take_at_once_one_may(
    process: MiniatureProcess, voice: Voice
) -> None:
    encoded(process)
    for _ in range(8):
        submit(voice, text="Ox.")
    pks = list(Segment.objects.values_list("pk", flat=True))
    claims = []
    for pk in pks:
        claims += leases.claim(Segment.objects.all(), [pk], worker=f"w{pk}")
    begun: list[set[Claim]] = []
    start = threading.Barrier(len(claims))

    def begin(claim: Claim) -> None:
        start.wait()
        begun.append(begin_takes({claim: "k" * 64}))
        connection.close()

    threads = [threading.Thread(target=begin, args=(claim,)) for claim in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(len(some) for some in begun) == [0] * 7 + [1]
    assert Segment.objects.filter(content_key="k" * 64).count() == 1
    with pytest.raises(IntegrityError):
        Segment.objects.filter(pk__in=pks).update(content_key="k" * 64)


@pytest.mark.thorough
def test_real_workers_render_each_sentence_once_though_one_is_killed(pair: Pair) -> None:
    first = pair.start_worker("w1").wait_ready()
    pair.start_worker("w2").wait_ready()
    voice = new_voice()
    wait_encoded(voice)
    jobs = [submit(voice, text=text_of(3, 8)) for _ in range(2)]
    begun = Segment.objects.filter(status="claimed", claimed_by="w1").exclude(content_key="")
    ended = RenderJob.objects.filter(status="succeeded")
    wait_for(lambda: begun.exists() or ended.count() == 2, what="w1 renders", poll=0.005)
    first.kill()

    wait_for(lambda: ended.count() == len(jobs), what="both jobs have ended")
    found = [counts(job) for job in jobs]
    assert sum(rendered for _, rendered, _ in found) == Take.objects.count() == 3
    assert sum(reused for *_, reused in found) == 2 * 24 - 3
