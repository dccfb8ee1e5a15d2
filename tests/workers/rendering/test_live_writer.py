"""What is rendered for a listener is listed in small pieces while it is made, and only then."""

from __future__ import annotations

import errno
import threading
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import OperationalError

from synth.jobs.removal import delete_job
from synth.live.watcher import request_live
from synth.models import LiveChunk, RenderJob, Segment, SweepTurn
from tests.workers.conftest import MiniatureProcess
from tests.workers.pairs import submit, wait_for
from tests.workers.rendering.takes_support import listed_samples, stored_files, take_samples
from voices.models import Voice
from workers.kinds import take_turn
from workers.rendering import live_writer
from workers.rendering.live_writer import (
    TURN,
    Cutter,
    fill_missing,
    fill_segment,
    missing,
    piece_samples,
)
from workers.sweep import clean, clean_folders

pytestmark = pytest.mark.django_db(transaction=True)
RATE = 44_100
NEVER = threading.Event()
LONG_AGO = "2020-01-01T00:00:00Z"


def render(process: MiniatureProcess) -> None:
    """Render everything that can be claimed, and let the writer come to its end."""
    process.render_all()
    wait_for(lambda: not process.live._is_running, what="the writer has written all")


def heard_job(voice: Voice, text: str = "Ox.", **order: Any) -> RenderJob:
    """Return a job that somebody listens to."""
    job = submit(voice, text=text, **order)
    request_live(job.pk)
    return job


def pieces() -> list[Path]:
    """Return the files of pieces."""
    return stored_files("live")


def assert_heard(*segments: Segment) -> None:
    """Assert that what is listed of segments is their takes."""
    for segment in segments:
        heard, take = listed_samples(segment), take_samples(segment)
        assert len(heard) == len(take)
        assert np.abs(heard - take).max() <= 1


def segments_of(job: RenderJob) -> list[Segment]:
    return list(job.segments.select_related("take", "job").order_by("pk"))


def refill() -> int:
    """Make what is missing of segments that were finished long ago; return of how many."""
    Segment.objects.update(finished_at=LONG_AGO)
    return fill_missing(NEVER)


def test_heard_segment_is_listed_as_its_take(process: MiniatureProcess, ready: Voice) -> None:
    job = heard_job(ready, "Ox one.\n\nOx two.")

    render(process)

    assert_heard(*segments_of(job))
    for segment in segments_of(job):
        rows = list(LiveChunk.objects.filter(segment=segment).order_by("index"))
        assert {row.attempt for row in rows} == {segment.take_id}
        assert [row.is_last for row in rows] == [False] * (len(rows) - 1) + [True]
        assert sum(row.num_samples for row in rows) > RATE, segment.text
        lengths = [row.num_samples for row in rows[:-1]]
        assert lengths == [piece_samples(index, RATE) for index in range(len(lengths))]
        assert lengths[0] < lengths[1] < lengths[2] == RATE // 2


def test_nothing_is_written_where_nobody_asked(process: MiniatureProcess, ready: Voice) -> None:
    submit(ready, text="Ox.")

    render(process)

    assert Segment.objects.get().take is not None
    assert not LiveChunk.objects.exists()
    assert process.live._waiting == []


def test_piece_that_cannot_be_stored_leaves_the_rest_to_the_take(
    process: MiniatureProcess, ready: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = heard_job(ready)
    store, calls = live_writer.store_object, []

    def full(piece: Any) -> LiveChunk:
        calls.append(piece.index)
        if piece.index == 2:
            raise OSError(errno.ENOSPC, "full")
        return store(piece)

    with monkeypatch.context() as patch:
        patch.setattr(live_writer, "store_object", full)
        render(process)

    assert calls == [0, 1, 2]
    assert LiveChunk.objects.count() == 2
    assert refill() == 1
    assert_heard(*segments_of(job))
    assert LiveChunk.objects.filter(is_last=True).count() == 1


@pytest.mark.parametrize("num_away", [2, 10**6])
def test_database_away_for_a_moment_costs_no_piece_and_for_longer_the_rest_alone(
    num_away: int, process: MiniatureProcess, ready: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = heard_job(ready)
    write, calls = live_writer._list, []

    def away(rows: Any) -> set[str]:
        calls.append(len(rows))
        if 2 <= len(calls) < 2 + num_away:
            raise OperationalError("database table is locked")
        return write(rows)

    monkeypatch.setattr(live_writer, "_list", away)
    monkeypatch.setattr(live_writer, "PATIENCE_SECONDS", 5.0 if num_away == 2 else 0.0)
    monkeypatch.setattr(live_writer, "ROWS_AT_ONCE", 1)
    render(process)

    if num_away == 2:
        assert_heard(*segments_of(job))
        assert len(pieces()) == LiveChunk.objects.count() > 2
    else:
        # No hole: what follows a piece that could not be listed is not listed either.
        assert (LiveChunk.objects.count(), len(pieces()), calls) == (1, 1, [1, 1])


def test_job_deleted_while_it_is_heard_leaves_nothing(
    process: MiniatureProcess, ready: Voice
) -> None:
    job = heard_job(ready)
    render(process)
    pk = job.segments.get().pk
    late = Cutter(job_id=job.pk, segment_id=pk, attempt=uuid.uuid4(), sample_rate=RATE)
    late.push(np.zeros(100, np.float32))

    delete_job(job)
    live_writer.add_rows([live_writer.store_object(late.end())])

    assert (LiveChunk.objects.count(), pieces()) == (0, [])


def test_cuts_do_not_depend_on_how_the_samples_come(rng: np.random.Generator) -> None:
    samples = rng.uniform(-1, 1, 100_000).astype(np.float32)
    job_id, attempt = uuid.uuid4(), uuid.uuid4()

    def cut(block: int) -> list[Any]:
        cutter = Cutter(job_id=job_id, segment_id=1, attempt=attempt, sample_rate=RATE)
        pieces = [
            piece
            for start in range(0, len(samples), block)
            for piece in cutter.push(samples[start : start + block])
        ]
        return [*pieces, cutter.end()]

    once, often = cut(100_000), cut(777)
    assert [len(piece.samples) for piece in once] == [len(piece.samples) for piece in often]
    assert [piece.is_last for piece in once] == [False] * (len(once) - 1) + [True]
    assert np.array_equal(np.concatenate([piece.samples for piece in often]), samples)


def test_pieces_are_at_the_rate_of_the_takes_whatever_the_job_asks_for(
    process: MiniatureProcess, ready: Voice
) -> None:
    job = heard_job(ready, format="pcm", sample_rate=16_000, speed=2.0)
    render(process)
    (segment,) = segments_of(job)
    rows = LiveChunk.objects.filter(segment=segment)
    assert set(rows.values_list("sample_rate", flat=True)) == {RATE}
    assert_heard(segment)
    while_rendered = listed_samples(segment)

    rows.delete()
    assert refill() == 1

    assert np.abs(listed_samples(segment) - while_rendered).max() <= 1


@pytest.fixture
def job(process: MiniatureProcess, ready: Voice) -> RenderJob:
    """A job whose two segments are rendered."""
    job = submit(ready, sentences=2)
    process.render_all()
    return job


@pytest.fixture
def heard(job: RenderJob) -> RenderJob:
    """The same, listened to, with all its pieces."""
    request_live(job.pk)
    fill_missing(NEVER)
    return job


def end(job: RenderJob, *, heard_at: str = LONG_AGO) -> None:
    """Let the job have ended long ago, and be listened to last at this time."""
    RenderJob.objects.filter(pk=job.pk).update(
        status="succeeded", finished_at=LONG_AGO, live_requested_at=heard_at
    )


def test_takes_of_a_job_that_is_listened_to_become_pieces_once(job: RenderJob) -> None:
    assert fill_missing(NEVER) == 0
    request_live(job.pk)

    assert [fill_missing(NEVER), fill_missing(NEVER)] == [2, 0]

    assert_heard(*segments_of(job))


def test_pieces_of_a_worker_that_died_are_gone_on_with(heard: RenderJob) -> None:
    segment = segments_of(heard)[0]
    rows = LiveChunk.objects.filter(segment=segment).order_by("index")
    kept = [row.pk for row in rows[:2]]
    rows.exclude(pk__in=kept).delete()

    assert refill() == 1

    assert set(kept) <= set(rows.values_list("pk", flat=True))
    assert_heard(segment)


def test_what_another_process_lists_meanwhile_is_not_listed_twice(heard: RenderJob) -> None:
    segment = segments_of(heard)[0]
    rows, files = LiveChunk.objects.count(), len(pieces())
    LiveChunk.objects.filter(segment=segment, is_last=True).delete()

    fill_segment(segment)

    assert LiveChunk.objects.count() == rows
    assert len(pieces()) == files + 1  # that of the row which the test removed


def test_worker_that_has_the_turn_is_left_alone(job: RenderJob) -> None:
    request_live(job.pk)
    take_turn(TURN, seconds=60)

    assert fill_missing(NEVER) == 0

    SweepTurn.objects.update(next_at=LONG_AGO)
    assert fill_missing(NEVER) == 2


def test_take_whose_audio_is_gone_ends_at_once_and_is_not_tried_for_ever(job: RenderJob) -> None:
    segment = segments_of(job)[0]
    assert segment.take is not None
    default_storage.delete(segment.take.audio_key)
    request_live(job.pk)

    assert fill_missing(NEVER) == 2

    row = LiveChunk.objects.get(segment=segment)
    assert (row.num_samples, row.key, row.is_last) == (0, "", True)
    assert not missing().exists()


def test_pieces_go_when_the_job_has_ended_and_nobody_listens_and_come_anew(
    heard: RenderJob,
) -> None:
    assert pieces()
    assert clean() == 0
    end(heard, heard_at="2999-01-01T00:00:00Z")
    assert clean() == 0

    end(heard)
    assert clean() > 2

    assert (LiveChunk.objects.count(), pieces()) == (0, [])
    assert not missing().exists()
    request_live(heard.pk)
    assert fill_missing(NEVER) == 2, "a later listener hears nothing"


def test_objects_that_no_row_lists_go_with_their_job(heard: RenderJob) -> None:
    lost = f"live/{uuid.uuid4()}/{uuid.uuid4().hex}.pcm"
    default_storage.save(lost, ContentFile(b"xx"))
    number = len(pieces())

    assert clean_folders() == 1
    assert len(pieces()) == number - 1
    RenderJob.objects.filter(pk=heard.pk).update(live_requested_at=None)
    assert [clean_folders(), clean_folders()] == [number - 1, 0]


def test_storage_without_pieces_is_no_error() -> None:
    assert (clean(), clean_folders()) == (0, 0)
