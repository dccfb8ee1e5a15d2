"""Takes become pieces where somebody listens, once, and all pieces go when nobody does."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from pytest_django import Settings

from synth.models import LiveChunk, RenderJob, Segment, SweepTurn
from synth.transitions.files import request_live
from tests.workers.conftest import MiniatureProcess
from tests.workers.pairs import submit
from tests.workers.rendering.heard import listed_samples, take_samples
from voices.models import Voice
from workers.process.claiming import take, take_segments
from workers.process.held_claims import Kind
from workers.rendering.live_writer import TURN, fill_missing, fill_segment, missing
from workers.upkeep.sweep import clean, clean_folders, take_turn

pytestmark = pytest.mark.django_db(transaction=True)
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
