"""What was rendered once is rendered no more: equal segments, chosen takes, what a plan expects."""

from __future__ import annotations

import datetime as dt
import hashlib
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest
from django.core.files.storage import default_storage
from django.db import IntegrityError, connection
from django.utils import timezone

from synth.audiobooks import expectations
from synth.audiobooks.expectations import expected_reuse
from synth.audiobooks.plans import load_plan
from synth.audiobooks.start import start_book
from synth.engine import Engine
from synth.jobs.retry import choose, rerender
from synth.models import RenderJob, Segment, Take, WorkerStatus
from synth.transitions.claims import begin_takes
from synth.transitions.jobs import cancel_job
from synth.transitions.segments import cancel_segment, free_lost_segments
from tests.factories import make_take, make_worker
from tests.synth.books_api.shelf import CHAPTERS, store_book
from tests.synth.test_take_keys import ENGINE
from tests.workers.conftest import MiniatureProcess
from tests.workers.pairs import Pair, submit, wait_for
from ttsweb import leases
from ttsweb.leases import Claim
from ttsweb.work import Kind
from voices.models import Voice
from workers.process.claiming import take_segments, take_work
from workers.rendering.render import RenderRequest, build_requests

in_database = pytest.mark.django_db(transaction=True)


class CountedEngine:
    """The real engine, which notes the texts that it is asked to render."""

    def __init__(self, engine: Engine, **changes: Any) -> None:
        self._engine = engine
        self.asked: list[str] = []
        self.engine_class = replace(engine.engine_class, **changes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, spec: Any, *given: Any, **named: Any) -> Any:
        self.asked.append(spec.text)
        return self._engine.submit(spec, *given, **named)

    @property
    def rendered(self) -> int:
        return len(self.asked)


def counted(process: MiniatureProcess, **changes: Any) -> CountedEngine:
    """Count what a process asks its engine for, from now on."""
    engine = CountedEngine(process.host.engine, **changes)
    process.host._engine = engine  # type: ignore[assignment] # it is one in all that is used here
    return engine


@pytest.fixture
def other(make_process: Callable[..., MiniatureProcess]) -> MiniatureProcess:
    """A second worker on the same rows."""
    return make_process(name="other")


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


@in_database
@pytest.mark.parametrize(("sentences", "times"), [(5, 8), (3, 8)])
def test_a_job_renders_each_of_its_sentences_once_and_another_seed_is_another_take(
    process: MiniatureProcess, ready: Voice, sentences: int, times: int
) -> None:
    job = submit(ready, text=text_of(sentences, times))
    engine = counted(process)
    work(process)
    segments = job.segments.count()
    assert (segments, engine.rendered) == (sentences * times, sentences)
    assert counts(job) == ("done", sentences, segments - sentences)
    assert not job.segments.exclude(attempts=1).exists()
    jobs = [submit(ready, text="Cow.", seed=seed) for seed in (0, 1)]
    work(process)
    assert engine.rendered == sentences + 2
    assert [counts(job) for job in jobs] == [("done", 1, 0)] * 2


@in_database
def test_two_jobs_on_two_workers_render_a_sentence_once(
    process: MiniatureProcess, other: MiniatureProcess, ready: Voice
) -> None:
    engines = [counted(one) for one in (process, other)]
    first, second = (submit(ready, text="Ox."), submit(ready, text="Ox."))
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
    assert (counts(first), counts(second)) == (("done", 1, 0), ("done", 0, 1))


@in_database
@pytest.mark.parametrize("end", ["lease", "released", "cancelled"])
def test_one_that_waited_renders_when_the_other_does_not_come_to_an_end(
    process: MiniatureProcess, other: MiniatureProcess, ready: Voice, end: str
) -> None:
    engine = counted(other)
    first, second = (submit(ready, text="Ox."), submit(ready, text="Ox."))
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

    assert (engine.rendered, Take.objects.count()) == (1, 1)
    ends = (counts(first)[0], counts(second)[0])
    assert ends == ("cancelled" if end == "cancelled" else "done", "done")
    claim.abandon()
    process.run_all()


@in_database
def test_a_worker_of_another_class_renders_its_own_take(
    process: MiniatureProcess, other: MiniatureProcess, ready: Voice
) -> None:
    engines = [counted(process), counted(other, backend="another")]
    first, second = (submit(ready, text=text_of(1, 3)) for _ in range(2))
    Segment.objects.filter(job=second).update(status="cancelled")  # until the first job is done
    work(process)
    Segment.objects.filter(job=second).update(status="queued")
    work(other)
    assert [engine.rendered for engine in engines] == [1, 1]
    takes = [set(job.segments.values_list("take", flat=True)) for job in (first, second)]
    assert [len(some) for some in takes] == [1, 1] and takes[0] != takes[1]


@in_database
def test_two_classes_of_workers_come_to_an_end_side_by_side(
    process: MiniatureProcess, other: MiniatureProcess, ready: Voice
) -> None:
    engines = [counted(process), counted(other, backend="another")]
    jobs = [submit(ready, text=text_of(2, 6)) for _ in range(2)]
    work(process, other)
    assert [counts(job)[0] for job in jobs] == ["done", "done"]
    assert all(engine.rendered <= 2 for engine in engines)


@in_database
def test_an_interactive_job_does_not_wait_for_bulk_work(
    process: MiniatureProcess, other: MiniatureProcess, ready: Voice
) -> None:
    engine = counted(other)
    bulk = submit(ready, text="Ox.", priority=RenderJob.Priority.BULK)
    take_segments(process)
    process.run_next()
    urgent = [submit(ready, text="Ox.") for _ in range(2)]
    take_segments(other)
    other.run_next()
    assert engine.rendered == 1  # the second one waits for the first
    other.run_all()
    work(other)
    process.run_all()
    work(other)
    assert (engine.rendered, Take.objects.count()) == (1, 1)
    assert {counts(job)[0] for job in (bulk, *urgent)} == {"done"}


@in_database
def test_of_many_workers_that_begin_a_take_at_once_one_may(ready: Voice) -> None:
    for _ in range(8):
        submit(ready, text="Ox.")
    pks = list(Segment.objects.values_list("pk", flat=True))
    found = (leases.claim(Segment.objects.all(), [pk], worker=f"w{pk}") for pk in pks)
    claims = [claim for some in found for claim in some]
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
    first, voice = pair.start_with_voice("w1")
    pair.start_worker("w2").wait_ready()
    jobs = [submit(voice, text=text_of(3, 8)) for _ in range(2)]
    begun = Segment.objects.filter(status="claimed", claimed_by="w1").exclude(content_key="")
    ended = RenderJob.objects.filter(status="succeeded")
    wait_for(lambda: begun.exists() or ended.count() == 2, what="w1 renders", poll=0.005)
    first.kill()
    wait_for(lambda: ended.count() == len(jobs), what="both jobs have ended")
    found = [counts(job) for job in jobs]
    assert sum(rendered for _, rendered, _ in found) == Take.objects.count() == 3
    assert sum(reused for *_, reused in found) == 2 * 24 - 3


class Finished:
    """A job of three sentences with its file; `asked` is what the engine was asked for since."""

    def __init__(self, process: MiniatureProcess, voice: Voice) -> None:
        self._process, self._engine = process, counted(process)
        self.job = submit(voice, text="Ox one.\n\nOx two.\n\nOx three.")
        assert len(self.work()) == 3

    def work(self, job: RenderJob | None = None) -> list[str]:
        """Work until the job has ended; return what the engine was asked for."""
        job = job or self.job
        self._engine.asked.clear()
        for _ in range(20):
            take_work(self._process)
            self._process.run_all()
            job.refresh_from_db()
            if job.status in RenderJob.FINAL:
                return self._engine.asked
        raise AssertionError(f"the job is {job.status}")

    def digest(self) -> str:
        with default_storage.open(self.job.exports.get().key) as file:
            return hashlib.sha256(file.read()).hexdigest()

    @property
    def second(self) -> Segment:
        return self.job.segments.select_related("job").order_by("pk")[1]


@pytest.fixture
def finished(process: MiniatureProcess, ready: Voice) -> Finished:
    return Finished(process, ready)


@in_database
def test_another_take_or_other_words_are_the_only_thing_rendered(finished: Finished) -> None:
    before, old_file, job = finished.second, finished.digest(), finished.job
    others = list(job.segments.exclude(pk=before.pk).values_list("take_id", flat=True))
    assert rerender(before)
    assert not rerender(finished.second)  # the second of a double click
    assert finished.work() == ["Ox two."]
    after = finished.second
    assert (job.status, job.segments_done, job.takes_rendered) == ("succeeded", 3, 4)
    assert after.take_id != before.take_id
    assert [one["take"] for one in after.candidates] == [str(before.take_id), str(after.take_id)]
    assert list(job.segments.exclude(pk=after.pk).values_list("take_id", flat=True)) == others
    assert finished.digest() != old_file
    assert job.exports.count() == 1

    takes = Take.objects.count()
    rerender(finished.second, text="Cow two.")
    assert finished.work() == ["Cow two."]
    assert finished.second.spoken_text == "Cow two."
    assert Take.objects.count() == takes - 1, "the candidates of the words before are gone"
    again = submit(job.voices.get().version.voice, text="Cow two.")
    assert finished.work(again) == []


@in_database
@pytest.mark.parametrize("by", ["choice", "seed"])
def test_take_before_comes_back_without_the_engine_with_its_file(
    finished: Finished, by: str
) -> None:
    old, seed, old_file = finished.second.take_id, finished.second.seed, finished.digest()
    assert old is not None
    rerender(finished.second, seed=5)
    finished.work()
    if by == "choice":
        choose(finished.second, old)
    else:
        rerender(finished.second, seed=seed)
    assert finished.work() == []
    assert (finished.job.status, finished.second.take_id) == ("succeeded", old)
    assert finished.digest() == old_file
    assert finished.job.takes_reused == (by == "seed")


@in_database
def test_segment_of_a_running_job_is_rendered_again_as_well(finished: Finished) -> None:
    job = finished.job
    RenderJob.objects.filter(pk=job.pk).update(status="running", segments_done=2)
    Segment.objects.filter(pk=job.segments.order_by("pk")[0].pk).update(status="queued", take=None)
    job.exports.all().delete()
    rerender(finished.second)
    assert finished.work() == ["Ox two."]  # the first sentence's take was there
    assert (job.status, job.segments_done) == ("succeeded", 3)


@in_database
def test_plan_counts_the_takes_that_a_worker_would_use_again(
    process: MiniatureProcess, ready: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine_class = process.host.engine.engine_class
    book = store_book()
    plan = load_plan(book)
    unknown = expected_reuse(book, plan)
    make_worker("gpu", engine_class=asdict(engine_class), state="starting")
    before = expected_reuse(book, plan)
    segments = list(Segment.objects.filter(job=start_book(store_book())).order_by("pk"))
    assert process.codes is not None
    requests = build_requests([one.pk for one in segments], process.codes, process.host.engine)
    spoken = segments[: len(segments) // 2]
    for segment in spoken:
        request = requests[segment.pk]
        assert isinstance(request, RenderRequest)
        make_take(content_key=request.content_key)

    found = expected_reuse(book, plan)
    otherwise = expected_reuse(store_book(options=book.options | {"seed": 8}), plan)
    monkeypatch.setattr(expectations, "MOST_CHARS", 10)  # one chapter of the three speaks for all
    about = expected_reuse(book, plan)

    assert unknown is None
    assert (before, otherwise) == ((len(segments), 0, 0.0), (len(segments), 0, 0.0))
    assert found is not None and about is not None
    assert (found.segments, found.reused) == (len(segments), len(spoken))
    chars = [len(one.spoken_text) for one in segments]
    assert found.share == pytest.approx(sum(chars[: len(spoken)]) / sum(chars))
    assert abs(about.segments - len(segments)) <= len(CHAPTERS)

    # Those of the worker that is not there do not count.
    make_worker("newer", engine_class=asdict(replace(engine_class, backend="of another class")))
    monkeypatch.undo()
    assert expected_reuse(book, plan) == before
    WorkerStatus.objects.update(state="ready")
    assert expected_reuse(book, plan) == found


@in_database
def test_nothing_is_told_while_the_voice_is_not_encoded(voice: Voice) -> None:
    make_worker("gpu", engine_class=asdict(ENGINE))
    book = store_book()
    assert expected_reuse(book, load_plan(book)) is None
