"""`./tts say`: one line, one file; with a worker of its own where none runs."""

from __future__ import annotations

import io
import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from synth.models import RenderJob
from tests.factories import make_job
from tests.workers.commands import (
    PATIENCE_SECONDS,
    check_is_speech,
    children_of,
    one_object,
    run,
    run_python,
    start,
)
from ttsweb.commands.base import StepError, signals_interrupt
from ttsweb.commands.remote_command import format_of
from ttsweb.commands.terminal import Progress
from workers.local.local_worker import LocalWorker, render_or_cancel

MAKE_VOICE = """
import django; django.setup()
from dataclasses import replace
from django.conf import settings
from ttsweb.migration import migrate_once
from workers.local.demo import DEMO_CLIP, find_or_make_admin, find_or_make_voice
migrate_once(settings.DATA_DIR)
user, _ = find_or_make_admin()
print(find_or_make_voice(replace(DEMO_CLIP, voice_name="Ada"), user).pk)
"""
FAIL_VOICE = """
import django; django.setup()
from voices.models import VoiceVersion
VoiceVersion.objects.update(status="failed", error_code="clip_silent", error_message="No sound.")
"""


def job_statuses(environment: dict[str, str]) -> list[str]:
    path = Path(environment["TTS_DATA_DIR"]) / "db.sqlite3"
    with closing(sqlite3.connect(path)) as database:
        return [row[0] for row in database.execute("SELECT status FROM synth_renderjob")]


@pytest.fixture
def voice_id(clean_env: dict[str, str]) -> str:
    """The id of the voice Ada, which no worker has encoded yet."""
    return run_python(clean_env, MAKE_VOICE)


def test_voice_that_is_not_ready_is_waited_for_and_no_worker_stays(
    clean_env: dict[str, str], voice_id: str, tmp_path: Path
) -> None:
    target = tmp_path / "new" / "out.flac"
    ended = run(clean_env, "say", "I saw the lamp.", "--voice", "ADA", "-o", target, "--json")
    assert ended.returncode == 0, ended.stderr
    assert one_object(ended.stdout)["audio_path"] == str(target)
    assert target.read_bytes()[:4] == b"fLaC"
    check_is_speech(target, seconds=(0.3, 5.0))
    assert [path.name for path in target.parent.iterdir()] == ["out.flac"]


@pytest.mark.thorough
def test_worker_that_runs_is_used_and_a_seed_decides_the_take(
    clean_env: dict[str, str], voice_id: str, tmp_path: Path
) -> None:
    files = [tmp_path / f"{index}.wav" for index in range(3)]
    with start(clean_env, "worker") as worker:
        try:
            assert worker.stdout is not None
            assert "ready" in worker.stdout.readline()
            for path, seed in zip(files, (7, 7, 8), strict=True):
                arguments = ["--voice", voice_id, "-o", path, "--seed", seed]
                ended = run(clean_env, "say", "I saw it.", *arguments)
                assert ended.returncode == 0, ended.stderr
        finally:
            worker.terminate()
            worker.communicate(timeout=PATIENCE_SECONDS)

    first, again, other = (path.read_bytes() for path in files)
    assert first == again != other
    log = Path(clean_env["TTS_DATA_DIR"]) / "logs" / "say.log"
    assert log.read_text() == "", "no second worker was started"


@pytest.mark.parametrize("name", ["out", "out.txt", "out.wav.part"])
def test_suffix_that_is_no_format_is_refused(name: str) -> None:
    with pytest.raises(StepError, match=r"\.opus") as refused:
        format_of(Path(name))
    assert refused.value.code == "format_unknown"


@pytest.mark.thorough
def test_stop_cancels_the_job_and_leaves_neither_file_nor_process(
    clean_env: dict[str, str], voice_id: str, tmp_path: Path
) -> None:
    target = tmp_path / "out.wav"
    text = "I saw the lamp in the long room. " * 600
    with start(clean_env, "say", text, "--voice", "Ada", "-o", str(target)) as process:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while job_statuses(clean_env) != ["running"]:
            assert time.monotonic() < deadline, job_statuses(clean_env)
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert job_statuses(clean_env) == ["cancelled"]
    assert not target.exists()
    assert children_of(process.pid) == []


@pytest.mark.django_db(transaction=True)
def test_signal_while_the_job_is_being_made_cancels_it(tmp_path: Path) -> None:
    def submit() -> RenderJob:
        job = make_job(segments=3)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)  # its message is still to be sent
        return job

    with pytest.raises(KeyboardInterrupt), signals_interrupt():
        render_or_cancel(submit, LocalWorker(), Progress(io.StringIO()))
    assert RenderJob.objects.get().status == RenderJob.Status.CANCELLED
