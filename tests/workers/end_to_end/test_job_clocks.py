"""Deadlines and retention with real workers, on both pairs of services."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
import soundfile
from django.core.files.storage import default_storage

from synth.models import Export, ExportCues, RenderJob, Segment, Take
from tests.workers.pairs import (
    Pair,
    assert_whole,
    new_voice,
    submit,
    wait_encoded,
    wait_ended,
    wait_for,
)
from ttsweb import leases


def test_deadline_stops_a_long_job_keeps_what_is_spoken_and_frees_the_worker(pair: Pair) -> None:
    worker = pair.start_worker().wait_ready()
    voice = new_voice()
    wait_encoded(voice)
    job = submit(voice, sentences=400)
    wait_for(Segment.objects.filter(status=Segment.Status.DONE).exists, what="some of it is spoken")

    RenderJob.objects.update(deadline_at=leases.database_now())
    wait_ended(job)

    rows = Segment.objects.filter(job=job)
    export = Export.objects.get()
    info = soundfile.info(default_storage.path(export.key))
    assert (job.status, job.error_code) == (RenderJob.Status.PARTIAL, "deadline_passed")
    assert job.segments_done == rows.filter(status="done").count() < 400
    assert set(rows.exclude(status="done").values_list("status", "error_code")) == {
        ("failed", "deadline_passed")
    }
    assert len(ExportCues.objects.get().cues) == job.segments_done
    assert info.frames / info.samplerate == export.duration_seconds
    following = submit(voice, sentences=1, first=1000)
    wait_ended(following)
    assert_whole(following)
    assert worker.stop() == 0


@pytest.mark.thorough
def test_job_whose_time_is_over_is_deleted_with_its_bytes(pair: Pair) -> None:
    pair.start_worker().wait_ready()
    voice = new_voice()
    wait_encoded(voice)
    job, kept = submit(voice, sentences=2, retention_seconds=3600), submit(voice, first=10)
    wait_ended(job, kept)
    keys = [Export.objects.get(job=job).key]
    for take in Take.objects.filter(segments__job=job):
        keys += [take.codes_key, take.audio_key]
        size = sum(default_storage.size(key) for key in (take.codes_key, take.audio_key))
        assert take.size_bytes == size
    paths = [Path(default_storage.path(key)) for key in keys]
    assert all(path.exists() for path in paths)
    assert job.finished_at is not None
    assert job.expires_at == job.finished_at + dt.timedelta(seconds=3600)

    RenderJob.objects.filter(pk=job.pk).update(expires_at=leases.database_now())

    wait_for(lambda: not RenderJob.objects.filter(pk=job.pk).exists(), what="the job is deleted")
    wait_for(lambda: not any(path.exists() for path in paths), what="its bytes are deleted")
    kept.refresh_from_db()
    assert kept.expires_at is None
    assert_whole(kept)
