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
from pytest_django import Settings

from synth.jobs.removal import delete_job
from synth.live.watcher import request_live
from synth.models import LiveChunk, RenderJob, Segment, SweepTurn
from tests.workers.conftest import MiniatureProcess
from tests.workers.pairs import submit, wait_for
from tests.workers.rendering.heard import listed_samples, take_samples
from ttsweb.work import Kind
from voices.models import Voice
from workers.process.claiming import take, take_segments
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
from workers.turns import take_turn

pytestmark = pytest.mark.django_db(transaction=True)
RATE = 44_100


def render(process: MiniatureProcess) -> None:
    """Render everything that can be claimed, and let the writer come to its end."""
    take_segments(process)
    process.run_all()
    wait_for(lambda: not process.live._is_running, what="the writer has written all")


def test_heard_segment_is_listed_as_its_take(process: MiniatureProcess, ready: Voice) -> None:
    job = submit(ready, text="Ox one.\n\nOx two.")
    request_live(job.pk)

    render(process)

    for segment in Segment.objects.filter(job=job).select_related("take"):
        rows = list(LiveChunk.objects.filter(segment=segment).order_by("index"))
        heard, take = listed_samples(segment), take_samples(segment)
        assert {row.attempt for row in rows} == {segment.take_id}
        assert [row.is_last for row in rows] == [False] * (len(rows) - 1) + [True]
        assert len(heard) == len(take) > RATE
        assert np.abs(heard - take).max() <= 1
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
    job = submit(ready, text="Ox.")
    request_live(job.pk)
    store, calls = live_writer.store_object, []

    def full(piece: Any) -> LiveChunk:
        calls.append(piece.index)
        if piece.index == 2:
            raise OSError(errno.ENOSPC, "full")
        return store(piece)

    with monkeypatch.context() as patch:
        patch.setattr(live_writer, "store_object", full)
        render(process)

    segment = Segment.objects.select_related("take").get()
    assert calls == [0, 1, 2]
    assert LiveChunk.objects.count() == 2
    Segment.objects.update(finished_at="2020-01-01T00:00:00Z")
    assert fill_missing(process.stopping) == 1
    assert np.abs(listed_samples(segment) - take_samples(segment)).max() <= 1
    assert LiveChunk.objects.filter(is_last=True).count() == 1


@pytest.mark.parametrize("num_away", [2, 10**6])
def test_database_away_for_a_moment_costs_no_piece_and_for_longer_the_rest_alone(
    num_away: int,
    process: MiniatureProcess,
    ready: Voice,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
) -> None:
    job = submit(ready, text="Ox.")
    request_live(job.pk)
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

    segment = Segment.objects.select_related("take").get()
    stored = [path for path in (settings.STORAGE_DIR / "live").rglob("*") if path.is_file()]
    if num_away == 2:
        assert np.abs(listed_samples(segment) - take_samples(segment)).max() <= 1
        assert len(stored) == LiveChunk.objects.count() > 2
    else:
        # No hole: what follows a piece that could not be listed is not listed either.
        assert (LiveChunk.objects.count(), len(stored), calls) == (1, 1, [1, 1])


def test_job_deleted_while_it_is_heard_leaves_nothing(
    process: MiniatureProcess, ready: Voice, settings: Any
) -> None:
    job = submit(ready, text="Ox.")
    request_live(job.pk)
    render(process)
    segment = Segment.objects.get()
    late = Cutter(job_id=job.pk, segment_id=segment.pk, attempt=uuid.uuid4(), sample_rate=RATE)
    late.push(np.zeros(100, np.float32))

    delete_job(RenderJob.objects.get())
    live_writer.add_rows([live_writer.store_object(late.end())])

    left = [path for path in (settings.STORAGE_DIR / "live").rglob("*") if path.is_file()]
    assert (LiveChunk.objects.count(), left) == (0, [])


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


@pytest.mark.parametrize("order", [{"format": "pcm"}, {"sample_rate": 24_000}])
def test_job_of_another_rate_is_heard_at_it_whether_while_or_after_it_was_rendered(
    process: MiniatureProcess, ready: Voice, order: dict[str, Any]
) -> None:
    job = submit(ready, text="Ox.", **order)
    request_live(job.pk)
    render(process)
    segment = Segment.objects.select_related("take").get()
    rows = LiveChunk.objects.filter(segment=segment)
    assert set(rows.values_list("sample_rate", flat=True)) == {24_000}
    while_rendered = listed_samples(segment)

    rows.delete()
    Segment.objects.update(finished_at="2020-01-01T00:00:00Z")
    assert fill_missing(process.stopping) == 1

    assert segment.take is not None
    assert len(while_rendered) == round(segment.take.audio_seconds * 24_000)
    assert np.abs(listed_samples(segment) - while_rendered).max() <= 1


NEVER = threading.Event()


@pytest.fixture
def job(process: MiniatureProcess, voice: Voice) -> RenderJob:
    """A job whose two segments are rendered."""
    take(process, Kind.VERSION)
    process.run_all()
    job = submit(voice, sentences=2)
    take_segments(process)
    process.run_all()
    return job


@pytest.fixture
def heard(job: RenderJob) -> RenderJob:
    """The same, listened to, with all its pieces."""
    request_live(job.pk)
    fill_missing(NEVER)
    return job


def pieces(settings: Settings) -> list[Path]:
    """Return the files of pieces."""
    return [path for path in (settings.STORAGE_DIR / "live").rglob("*") if path.is_file()]


def end(job: RenderJob, *, heard_at: str = "2020-01-01T00:00:00Z") -> None:
    """Let the job have ended long ago, and be listened to last at this time."""
    RenderJob.objects.filter(pk=job.pk).update(
        status="succeeded", finished_at="2020-01-01T00:00:00Z", live_requested_at=heard_at
    )


def test_takes_of_a_job_that_is_listened_to_become_pieces_once(job: RenderJob) -> None:
    assert fill_missing(NEVER) == 0
    request_live(job.pk)

    assert [fill_missing(NEVER), fill_missing(NEVER)] == [2, 0]

    for segment in Segment.objects.filter(job=job).select_related("take"):
        heard, take = listed_samples(segment), take_samples(segment)
        assert len(heard) == len(take)
        assert np.abs(heard - take).max() <= 1


def test_pieces_of_a_worker_that_died_are_gone_on_with(
    heard: RenderJob, settings: Settings
) -> None:
    segment = Segment.objects.filter(job=heard).select_related("take").order_by("index")[0]
    rows = LiveChunk.objects.filter(segment=segment).order_by("index")
    kept = [row.pk for row in rows[:2]]
    rows.exclude(pk__in=kept).delete()

    Segment.objects.update(finished_at="2020-01-01T00:00:00Z")
    assert fill_missing(NEVER) == 1

    assert set(kept) <= set(rows.values_list("pk", flat=True))
    assert np.abs(listed_samples(segment) - take_samples(segment)).max() <= 1


def test_what_another_process_lists_meanwhile_is_not_listed_twice(
    heard: RenderJob, settings: Settings
) -> None:
    segment = Segment.objects.filter(job=heard).select_related("take", "job")[0]
    before = (LiveChunk.objects.count(), len(pieces(settings)))
    LiveChunk.objects.filter(segment=segment, is_last=True).delete()

    fill_segment(segment)

    assert LiveChunk.objects.count() == before[0]
    assert len(pieces(settings)) == before[1] + 1  # that of the row which the test removed


def test_worker_that_has_the_turn_is_left_alone(job: RenderJob) -> None:
    request_live(job.pk)
    take_turn(TURN, seconds=60)

    assert fill_missing(NEVER) == 0

    SweepTurn.objects.update(next_at="2020-01-01T00:00:00Z")
    assert fill_missing(NEVER) == 2


def test_take_whose_audio_is_gone_ends_at_once_and_is_not_tried_for_ever(job: RenderJob) -> None:
    segment = Segment.objects.filter(job=job).select_related("take").order_by("index")[0]
    assert segment.take is not None
    default_storage.delete(segment.take.audio_key)
    request_live(job.pk)

    assert fill_missing(NEVER) == 2

    row = LiveChunk.objects.get(segment=segment)
    assert (row.num_samples, row.key, row.is_last) == (0, "", True)
    assert not missing().exists()


def test_pieces_go_when_the_job_has_ended_and_nobody_listens(
    heard: RenderJob, settings: Settings
) -> None:
    assert pieces(settings)
    assert clean() == 0
    end(heard, heard_at="2999-01-01T00:00:00Z")
    assert clean() == 0

    end(heard)
    assert clean() > 2

    assert (LiveChunk.objects.count(), pieces(settings)) == (0, [])
    assert not missing().exists()


def test_listener_of_later_gets_the_pieces_anew(heard: RenderJob) -> None:
    end(heard)
    clean()

    request_live(heard.pk)

    assert fill_missing(NEVER) == 2


def test_objects_that_no_row_lists_go_with_their_job(heard: RenderJob, settings: Settings) -> None:
    lost = f"live/{uuid.uuid4()}/{uuid.uuid4().hex}.pcm"
    default_storage.save(lost, ContentFile(b"xx"))
    number = len(pieces(settings))

    assert clean_folders() == 1
    assert len(pieces(settings)) == number - 1
    RenderJob.objects.filter(pk=heard.pk).update(live_requested_at=None)
    assert clean_folders() == number - 1
    assert clean_folders() == 0


def test_storage_without_pieces_is_no_error(settings: Any) -> None:
    assert (clean(), clean_folders()) == (0, 0)
