"""A backup that is made while jobs are rendered: restored elsewhere, a worker finishes them."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from pytest_django import Settings

from synth.models import Export, RenderJob, Segment, Take
from tests.services import postgres_database
from tests.workers.commands import run
from tests.workers.pairs import (
    Pair,
    assert_whole,
    submit,
    wait_ended,
    wait_for,
)
from ttsweb.configuration.builders import database_settings

pytestmark = pytest.mark.thorough


def new_database(pair: Pair) -> AbstractContextManager[str | None]:
    """Give an empty PostgreSQL database beside a pair's, or None where it uses SQLite."""
    if "TTS_DATABASE_URL" in pair.environment:
        return postgres_database()
    return nullcontext()


def call(*arguments: Any) -> dict[str, Any]:
    """Run a command here, at once: a process of its own would begin after the jobs have ended."""
    out = io.StringIO()
    call_command(*map(str, arguments), "--json", stdout=out)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def said(ended: Any) -> dict[str, Any]:
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_jobs_of_a_backup_are_finished_where_it_is_restored(
    pair: Pair, tmp_path: Path, settings: Settings
) -> None:
    folder = tmp_path / "backups"
    worker, voice = pair.start_with_voice()
    whole = submit(voice, sentences=2, first=100)
    wait_ended(whole)
    jobs = [submit(voice, sentences=8, first=8 * number) for number in range(3)]
    begun = Segment.objects.filter(job__in=jobs, status="done")
    wait_for(begun.exists, what="some of the jobs is rendered")

    first = call("backup", folder)

    assert first["unfit"] == []
    assert first["copied"] == first["objects"] >= 5
    open_jobs = RenderJob.objects.exclude(status__in=RenderJob.FINAL)
    assert open_jobs.exists(), "all was rendered before the backup was there"
    wait_ended(*jobs)
    second = call("backup", folder)
    assert second["linked"] >= first["objects"]
    assert second["objects"] > first["objects"]
    call("check_data")
    worker.stop()
    there = {take.content_key: take.audio_seconds for take in Take.objects.all()}

    with new_database(pair) as url:
        changed = {"TTS_DATA_DIR": str(tmp_path / "other")}
        changed |= {"TTS_DATABASE_URL": url} if url else {}
        environment = pair.environment | changed
        restored = said(run(environment, "restore", first["path"], "--json"))
        assert restored["objects"] == first["objects"]
        other = dataclasses.replace(
            pair,
            environment=environment,
            data_dir=tmp_path / "other",
            database=database_settings(url, data_dir=tmp_path / "other"),
            workers=[],
        )
        own = settings.STORAGES["default"] | {"OPTIONS": {"location": other.data_dir / "storage"}}
        settings.STORAGES = settings.STORAGES | {"default": own}
        with entered_as_it_is(other, settings):
            kept = RenderJob.objects.get(pk=whole.pk)
            assert kept.status == "succeeded"
            again = [RenderJob.objects.get(pk=job.pk) for job in jobs]
            assert {job.status for job in again} - {"succeeded"}
            again_worker = other.start_worker("another").wait_ready()
            try:
                wait_ended(*again)
            finally:
                again_worker.stop()
            assert_whole(kept, *again)
            made = {take.content_key: take.audio_seconds for take in Take.objects.all()}
            assert made == there  # nothing is lost, and nothing else was rendered
            assert Export.objects.filter(status="done").count() == len(jobs) + 1
            call("check_data")


@contextmanager
def entered_as_it_is(pair: Pair, settings: Settings) -> Iterator[None]:
    """Point the ORM at a pair whose database a command has made."""
    from tests.workers import pairs

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "_make_tables", lambda: None)
        with pair.entered(settings):
            yield
