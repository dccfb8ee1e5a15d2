"""A worker elsewhere, with a key and nothing else, does what a worker at the site does."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import default_storage
from pytest_django import Settings

from synth.models import Export, Segment, Take, WorkerStatus
from tests.workers.pairs import (
    Pair,
    assert_whole,
    counter,
    new_voice,
    submit,
    wait_encoded,
    wait_ended,
)
from tests.workers.remote.sites import RemoteSetting
from workers.rendering.codes import unpack_codes


def takes() -> dict[str, tuple[str, bytes, dict[str, Any]]]:
    """Return of each take its audio's digest, its codes, and what was measured but times."""
    found = {}
    for take in Take.objects.all():
        audio = hashlib.sha256(default_storage.open(take.audio_key).read()).hexdigest()
        codes = unpack_codes(default_storage.open(take.codes_key).read(), {})
        measures = {
            name: value for name, value in take.measures.items() if not name.endswith("seconds")
        }
        found[take.content_key] = (audio, codes.tobytes(), measures)
    return found


@pytest.mark.parametrize("pair", ["files"], indirect=True)
def test_home_renders_a_job_and_a_voice_as_a_worker_of_the_site_does(
    setting: RemoteSetting, pair: Pair, settings: Settings, tmp_path: Path
) -> None:
    settings.CHECKPOINT = tmp_path / "allowing"
    settings.CHECKPOINT.mkdir()
    (settings.CHECKPOINT / "card.json").write_text('{"name": "x", "licence": "y", "history": 1}')
    strict = {"TTS_ENGINE_STRICT": "true"}
    worker = setting.home.start_worker("gpu", **strict).wait_ready()
    voice = new_voice()
    wait_encoded(voice)
    job = submit(voice, sentences=6, history=1)
    wait_ended(job)

    assert_whole(job)
    assert set(Segment.objects.values_list("claimed_by", "attempts")) == {
        (setting.home.name_of(worker), 1)
    }
    # The fifth one's words begin a chain.
    assert list(job.segments.values_list("history_used", flat=True)) == [0, 1, 1, 1, 0, 1]
    assert counter("encoder_run") == 1
    status = WorkerStatus.objects.get(pk=setting.home.name_of(worker))
    assert (status.role, status.state) == ("gpu", "ready")
    assert status.figures["slots"] == 4
    assert worker.stop() == 0
    status.refresh_from_db()
    assert status.state == "stopped"
    there = {path.name for path in setting.home.folder.iterdir()}
    assert not there & {"db.sqlite3", "storage"}
    assert not [path for path in (setting.home.folder / "queue").rglob("*") if path.is_file()]

    remote, export = takes(), Export.objects.get(job=job)
    Take.objects.all().delete()
    pair.start_worker("local", role="gpu", **strict).wait_ready()
    again = submit(voice, sentences=6, history=1)
    wait_ended(again)

    assert_whole(again)
    assert takes() == remote
    assert Export.objects.get(job=again).sha256 == export.sha256
