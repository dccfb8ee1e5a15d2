"""Rendering one segment of a finished job again costs one take; everything else is reused."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from django.core.files.storage import default_storage

from synth.jobs.retry import choose, rerender
from synth.models import RenderJob, Segment, Take
from tests.workers.conftest import MiniatureProcess
from tests.workers.pairs import submit
from ttsweb.work import Kind
from voices.models import Voice
from workers.process.claiming import take, take_work

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def asked(process: MiniatureProcess, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that the engine was asked for."""
    texts: list[str] = []
    real = process.host.engine.submit

    def submit_and_note(spec: Any, **options: Any) -> Any:
        texts.append(spec.text)
        return real(spec, **options)

    monkeypatch.setattr(process.host.engine, "submit", submit_and_note)
    return texts


@pytest.fixture
def job(process: MiniatureProcess, voice: Voice, asked: list[str]) -> RenderJob:
    """A job of three sentences with its file."""
    take(process, Kind.VERSION)
    process.run_all()
    job = submit(voice, text="Ox one.\n\nOx two.\n\nOx three.")
    work(process, job)
    assert len(asked) == 3
    asked.clear()
    return job


def work(process: MiniatureProcess, job: RenderJob) -> None:
    """Work until the job has ended."""
    for _ in range(20):
        take_work(process)
        process.run_all()
        job.refresh_from_db()
        if job.status in RenderJob.FINAL:
            return
    raise AssertionError(f"the job is {job.status}")


def digest(job: RenderJob) -> str:
    with default_storage.open(job.exports.get().key) as file:
        return hashlib.sha256(file.read()).hexdigest()


def second(job: RenderJob) -> Segment:
    return job.segments.select_related("job").order_by("pk")[1]


def test_another_take_is_the_only_thing_that_is_rendered(
    process: MiniatureProcess, job: RenderJob, asked: list[str]
) -> None:
    before, old_file = second(job), digest(job)
    others = list(job.segments.exclude(pk=before.pk).values_list("take_id", flat=True))

    assert rerender(before)
    assert not rerender(second(job))  # the second of a double click
    work(process, job)

    after = second(job)
    assert asked == ["Ox two."]
    assert (job.status, job.segments_done, job.takes_rendered) == ("succeeded", 3, 4)
    assert after.take_id != before.take_id
    assert [one["take"] for one in after.candidates] == [str(before.take_id), str(after.take_id)]
    assert list(job.segments.exclude(pk=after.pk).values_list("take_id", flat=True)) == others
    assert digest(job) != old_file
    assert job.exports.count() == 1


def test_take_before_can_be_chosen_without_the_engine_and_gives_the_same_file(
    process: MiniatureProcess, job: RenderJob, asked: list[str]
) -> None:
    old, old_file = second(job).take_id, digest(job)
    rerender(second(job), seed=5)
    work(process, job)
    asked.clear()
    assert old is not None

    choose(second(job), old)
    work(process, job)

    assert asked == []
    assert (job.status, second(job).take_id) == ("succeeded", old)
    assert digest(job) == old_file


def test_seed_that_was_rendered_before_is_found_and_not_rendered(
    process: MiniatureProcess, job: RenderJob, asked: list[str]
) -> None:
    old, seed = second(job).take_id, second(job).seed
    rerender(second(job), seed=5)
    work(process, job)
    asked.clear()

    rerender(second(job), seed=seed)
    work(process, job)

    assert (asked, second(job).take_id, job.takes_reused) == ([], old, 1)


def test_other_words_are_the_only_thing_that_is_rendered(
    process: MiniatureProcess, job: RenderJob, asked: list[str]
) -> None:
    rerender(second(job), text="Cow two.")
    work(process, job)

    assert asked == ["Cow two."]
    assert second(job).spoken_text == "Cow two."
    assert Take.objects.count() == 3
    again = submit(job.voices.get().version.voice, text="Cow two.")
    asked.clear()
    work(process, again)
    assert asked == []


def test_segment_of_a_running_job_is_rendered_again_as_well(
    process: MiniatureProcess, job: RenderJob, asked: list[str]
) -> None:
    RenderJob.objects.filter(pk=job.pk).update(status="running", segments_done=2)
    Segment.objects.filter(pk=job.segments.order_by("pk")[0].pk).update(status="queued", take=None)
    job.exports.all().delete()

    rerender(second(job))
    work(process, job)

    assert asked == ["Ox two."]  # the first sentence's take was there
    assert (job.status, job.segments_done) == ("succeeded", 3)
