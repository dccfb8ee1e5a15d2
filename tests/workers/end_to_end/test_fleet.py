"""Workers that give their device back, that differ, and that stand under one supervisor."""

from __future__ import annotations

import re
import signal
from collections import Counter
from typing import Any

import pytest
from django.core.files.storage import default_storage
from django.test import Client

from synth.jobs.removal import delete_job
from synth.models import RenderJob, Segment, WorkerStatus
from tests.workers.pairs import (
    PROJECT,
    Pair,
    RunningWorker,
    assert_whole,
    new_voice,
    submit,
    wait_encoded,
    wait_ended,
    wait_for,
)
from voices.models import VoiceVersion

State = WorkerStatus.State
DEMO: dict[str, Any] = {"TTS_CHECKPOINT": PROJECT / "synth" / "demo", "TTS_ENGINE_STRICT": "true"}
IDLE: dict[str, Any] = {"TTS_IDLE_UNLOAD_SECONDS": "0.5"}
files_alone = pytest.mark.parametrize("pair", ["files"], indirect=True)


def wait_state(worker: RunningWorker, state: State) -> WorkerStatus:
    """Return a worker's row once it says this."""
    rows = WorkerStatus.objects.filter(pk=worker.name, state=state)
    found: WorkerStatus = wait_for(rows.first, what=f"the worker is {state}", poll=0.01)
    return found


def file_of(job: RenderJob) -> bytes:
    assert_whole(job)
    with default_storage.open(job.exports.get().key) as file:
        content: bytes = file.read()
    return content


@files_alone
def test_idle_worker_gives_memory_back_and_renders_the_same_when_work_comes(
    pair: Pair, client: Client
) -> None:
    worker = pair.start_worker(**DEMO, **IDLE).wait_ready()
    voice = new_voice()
    assert wait_encoded(voice).status == VoiceVersion.Status.READY
    first = submit(voice, sentences=2, seed=7)
    wait_ended(first)
    before = file_of(first)
    delete_job(first)  # and its takes: nothing is left to be used again

    # It may have been unloaded before the job came too: each load is followed by an unload.
    loads = worker.log.count("engine ready: ")
    wait_for(lambda: worker.log.count("engine unloaded") >= loads, what="the engine is unloaded")
    row = wait_state(worker, State.UNLOADED)
    assert row.codec_fingerprint and row.engine_class and row.figures["slots"] > 0
    assert "engine_bytes" not in row.figures
    freed = [int(found) for found in re.findall(r"unloaded.*freed_bytes=(-?\d+)", worker.log)]
    assert freed and max(freed) > 10_000_000
    answer = client.get("/readyz").json()
    assert answer["parts"]["worker"] == {"ok": True, "detail": worker.name}

    again = submit(voice, sentences=2, seed=7)
    wait_ended(again)
    assert file_of(again) == before
    assert wait_state(worker, State.UNLOADED).figures["load_seconds"] > 0
    assert len(re.findall("engine ready: ", worker.log)) >= 2

    other = new_voice("Grace", ("Other words.", 2.0))
    assert wait_encoded(other).status == VoiceVersion.Status.READY
    wait_state(worker, State.UNLOADED)
    assert worker.stop() == 0
    assert WorkerStatus.objects.get(pk=worker.name).state == State.STOPPED


@files_alone
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_worker_ended_as_it_loads_again_loses_nothing(pair: Pair, number: int) -> None:
    worker, voice = pair.start_with_voice(**IDLE)
    wait_state(worker, State.UNLOADED)
    job = submit(voice, sentences=2)
    wait_state(worker, State.WARMING)
    worker.send(number)
    assert worker.popen.wait(180) == (0 if number == signal.SIGTERM else -number)

    rows = Segment.objects.filter(job=job).values_list("status", "attempts", "losses")
    assert set(rows) == {("queued", 0, 0)}
    pair.start_worker("next").wait_ready()
    wait_ended(job)
    assert_whole(job)


@files_alone
def test_workers_of_two_classes_serve_one_database_and_share_no_takes(pair: Pair) -> None:
    classes: dict[str, Any] = {"exact": {}, "small": {"TTS_DTYPE": "int8"}}
    workers = {name: pair.start_worker(name, **env) for name, env in classes.items()}
    for worker in workers.values():
        worker.wait_ready()
    voice = new_voice()
    wait_encoded(voice)

    def render() -> RenderJob:
        job = submit(voice, sentences=12, seed=7)
        wait_ended(job)
        assert_whole(job)
        return job

    first = render()
    done_by = Counter(first.segments.values_list("claimed_by", flat=True))
    said = WorkerStatus.objects.filter(pk__in=classes)
    assert len({str(row.engine_class) for row in said}) == 2
    assert len({row.codec_fingerprint for row in said}) == 1  # each speaks with the voice

    for alone, other in (("small", "exact"), ("exact", "small")):
        if workers[alone].popen.poll() is not None:
            workers[alone] = pair.start_worker(alone, **classes[alone]).wait_ready()
        workers[other].stop()
        again = render()
        assert set(again.segments.values_list("claimed_by", flat=True)) == {alone}
        assert again.takes_reused == done_by[alone]
