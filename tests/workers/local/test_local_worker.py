"""A worker, voices, texts and files of this machine, as demo and say use them."""

from __future__ import annotations

import datetime as dt
import fcntl
import io
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.utils import timezone
from pytest_django import Settings

from synth.models import RenderJob, Segment, WorkerStatus
from tests.factories import make_export, make_job, make_user, make_version, make_voice, make_worker
from ttsweb.commands.base import StepError
from ttsweb.commands.terminal import Progress
from voices.models import Voice, VoiceVersion
from voices.objects import delete_voice
from workers.local import local_worker
from workers.local.children import Child
from workers.local.demo import DEMO_CLIP, find_or_make_admin, find_or_make_voice, newest_version
from workers.local.local_worker import (
    LOCK_NAME,
    NAMES_LISTED,
    LocalWorker,
    check_text,
    find_speaker,
    save_audio,
    submit_text,
    summary,
    wait_encoded,
    wait_ended,
)

pytestmark = pytest.mark.django_db


class IdleChild(Child):
    """A child that is never started: what is tested here is whether it would be."""

    def start(self) -> None:
        """Do nothing."""


@pytest.fixture(autouse=True)
def no_processes(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    settings.WORKER_NAME = "ours"
    monkeypatch.setattr(local_worker, "Child", IdleChild)


@pytest.fixture
def worker() -> Iterator[LocalWorker]:
    made = LocalWorker()
    yield made
    made.close()


@contextmanager
def refused(code: str, words: str = "") -> Iterator[None]:
    with pytest.raises(StepError, match=words or None) as caught:
        yield
    assert caught.value.code == code


def is_locked() -> bool:
    descriptor = os.open(django_settings.DATA_DIR / LOCK_NAME, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@pytest.mark.parametrize("roles", [("all",), ("gpu", "cpu")])
@pytest.mark.parametrize("state", ["starting", "warming", "ready"])
def test_workers_elsewhere_are_used(
    worker: LocalWorker, state: str, roles: tuple[str, ...]
) -> None:
    for role in roles:
        make_worker(f"{role}-1", role=role, state=state)
    worker.keep()
    assert worker.child is None
    assert worker.is_ready() == (state == "ready")
    assert not is_locked()


@pytest.mark.parametrize(
    ("name", "role", "state", "age"),
    [
        ("none", "cpu", "stopped", 0), ("another-host", "gpu", "ready", 0),
        ("another-host", "all", "failed", 0), ("another-host", "all", "draining", 0),
        ("another-host", "all", "ready", 60), ("ours-embedded", "all", "ready", 1),
    ],
)  # fmt: skip
def test_worker_is_started_where_none_can_do_it_all(
    worker: LocalWorker, name: str, role: str, state: str, age: float
) -> None:
    make_worker(name, role=role, state=state, seconds_ago=age)
    worker.keep()
    assert worker.child is not None
    assert is_locked()
    assert not worker.is_ready() or role == "gpu"


def test_second_command_starts_none_beside_the_first_and_takes_over_after_it(
    worker: LocalWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_worker, "LOOK_EVERY_SECONDS", 0.0)
    second = LocalWorker()
    worker.keep()
    second.keep()
    assert second.child is None
    worker.close()
    second.keep()
    assert second.child is not None
    second.close()


def test_looks_at_the_database_are_spaced(worker: LocalWorker) -> None:
    make_worker("another-host", role="all")
    worker.keep()
    WorkerStatus.objects.all().delete()
    worker.keep()
    assert worker.child is None


def test_log_of_the_worker_is_kept_in_the_given_file(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "worker.log"
    LocalWorker(log_path=path).close()
    assert path.exists()


BAD_VERSION: dict[str, Any] = {
    "status": "failed",
    "error_code": "clip_silent",
    "error_message": "Silence.",
}


class NoWorker(LocalWorker):
    """A worker that is there and is nobody's business here."""

    def __init__(self) -> None:
        """Open nothing."""

    def keep(self) -> None:
        raise AssertionError("nothing had to be waited for")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("succeeded", ""), ("failed", "bad"), ("partial", "bad"), ("cancelled", "job_cancelled"),
        (None, "job_deleted"),
    ],
)  # fmt: skip
def test_job_that_has_ended_is_returned_or_says_what_failed(status: str | None, code: str) -> None:
    job = make_job(segments=2)
    bad = {"error_code": "bad", "error_message": "It is bad."}
    why = bad if status == "failed" else {}
    RenderJob.objects.filter(pk=job.pk).update(status=status or "succeeded", **why)
    if status == "partial":  # what failed in it
        Segment.objects.filter(pk=job.segments.all()[1].pk).update(status="failed", **bad)
    progress = Progress(io.StringIO())
    if not code:
        assert wait_ended(job.pk, NoWorker(), progress) == job
        return
    with refused(code, "^It is bad.$" if code == "bad" else ""):
        wait_ended(job.pk if status else uuid.uuid4(), NoWorker(), progress)


def test_failed_version_gives_its_code_and_sentence_and_one_that_is_gone_is_told() -> None:
    version, progress = make_version(make_voice(versions=0), **BAD_VERSION), Progress(io.StringIO())
    with refused("clip_silent", r"Silence\."):
        wait_encoded(version.pk, NoWorker(), progress)
    with refused("voice_deleted"):
        wait_encoded(uuid.uuid4(), NoWorker(), progress)


def test_file_is_written_whole_over_an_older_one_which_else_stays(tmp_path: Path) -> None:
    job, target = make_job(), tmp_path / "folder" / "out.wav"
    target.parent.mkdir()
    target.write_bytes(b"old")
    with refused("audio_missing"):
        save_audio(job, target)
    export = make_export(job, key="exports/gone.wav")
    with refused("file_not_written", r"out\.wav could not be written"):
        save_audio(job, target)
    assert [path.read_bytes() for path in target.parent.iterdir()] == [b"old"]
    export.key = default_storage.save("exports/a.wav", ContentFile(b"new " * 1000))
    export.save()
    save_audio(job, target)
    assert [path.read_bytes() for path in target.parent.iterdir()] == [b"new " * 1000]


def test_summary_compares_with_the_playing_time() -> None:
    job = make_job(segments=2)
    job.segments_done, job.audio_seconds = 2, 6.0
    job.started_at = timezone.now()
    job.finished_at = job.started_at + dt.timedelta(seconds=4)
    assert summary(job) == "2/2 segments, 1.5x real time"


def test_admin_can_log_in_with_the_password_that_is_shown_once() -> None:
    user, password = find_or_make_admin()
    assert user.username == "admin" and user.is_superuser
    assert len(password) >= 16
    assert user.check_password(password)
    found, shown = find_or_make_admin()
    assert (found.pk, found.password, shown) == (user.pk, user.password, "")


def test_superuser_of_another_name_is_enough() -> None:
    owner = make_user("grace", is_superuser=True)
    assert find_or_make_admin() == (owner, "")
    assert get_user_model().objects.count() == 1


def test_demo_voice_is_made_once_with_its_consent_and_again_where_need_be() -> None:
    user = make_user()
    made, found = (find_or_make_voice(DEMO_CLIP, user) for _ in range(2))
    assert made == found
    assert VoiceVersion.objects.count() == 1
    assert found.owner == user
    assert "no person" in found.consent_statement
    VoiceVersion.objects.update(status="failed", error_code="worker_lost")
    assert newest_version(find_or_make_voice(DEMO_CLIP, user)).status == "pending"
    voice = find_or_make_voice(replace(DEMO_CLIP, transcript="Something else."), user)
    assert Voice.objects.count() == 1
    assert newest_version(voice).number == 2
    delete_voice(voice)
    assert find_or_make_voice(DEMO_CLIP, user) != voice


@pytest.mark.parametrize(
    ("content", "code"), [(None, "clip_not_read"), (b"Not audio.", "clip_not_audio")]
)
def test_clip_that_cannot_be_used_is_told(tmp_path: Path, content: bytes | None, code: str) -> None:
    path = tmp_path / "clip.wav"
    if content is not None:
        path.write_bytes(content)
    with refused(code):
        find_or_make_voice(replace(DEMO_CLIP, path=path), make_user())
    assert Voice.objects.count() == 0


def test_voice_is_found_by_its_name_in_whatever_case_and_by_its_id() -> None:
    made = make_voice("Ada")
    for spelling in ("Ada", "ADA", "ada", str(made.pk)):
        assert find_speaker(spelling) == (made, made.current_version), spelling


def test_voice_that_is_unknown_or_without_a_clip_is_told_with_names_but_not_archived_ones() -> None:
    with refused("voice_not_found", r"\./tts demo makes one"):
        find_speaker("Linus")
    for name, archived in (("Ada", False), ("Grace", False), ("Old", True)):
        make_voice(name, archived=archived, versions=0)
    with refused("voice_not_found", r"There are: Ada, Grace\.$"):
        find_speaker("Linus")
    with refused("voice_not_ready"):
        find_speaker("Ada")
    make_version(Voice.objects.get(name="Grace"), **BAD_VERSION)
    with refused("clip_silent", r"Silence\."):
        find_speaker("Grace")
    for index in range(NAMES_LISTED - 1):
        make_voice(f"Voice {index:02}")
    with refused("voice_not_found", r"Voice 17 and more\.$"):
        find_speaker("Linus")


@pytest.mark.parametrize("text", ["", " \n", "\x00binary"])
def test_text_that_is_refused_in_a_job_is_refused_at_once(text: str) -> None:
    with pytest.raises(StepError) as at_once:
        check_text(text)
    with refused(at_once.value.code, f"^{at_once.value}$"):
        submit_text(text, make_voice("Ada"), owner=None, audio_format="wav")


def test_job_has_the_seed_and_the_format_that_were_asked_for() -> None:
    voice = make_voice()
    for seed in (-1, 2**63):
        with refused("seed_invalid"):
            submit_text("Hello.", voice, owner=None, audio_format="wav", seed=seed)
    assert RenderJob.objects.count() == 0
    job = submit_text("Hello.", voice, owner=None, audio_format="mp3", seed=2**63 - 1)
    assert (job.seed, job.format, job.owner) == (2**63 - 1, "mp3", None)
