"""A version gets ready, fails with a sentence, or waits; nothing else happens to it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from unittest.mock import Mock

import numpy as np
import pytest
from django.core.files.storage import default_storage
from pytest_django import Settings

from synth.engine.errors import DeviceOutOfMemoryError
from synth.models import RenderJob
from synth.transitions.jobs import cancel_job
from tests.factories import stored as fresh
from tests.workers.clips import wav_bytes
from tests.workers.conftest import MiniatureProcess
from tests.workers.pairs import counter, new_voice, submit
from tests.workers.rendering.takes_support import stored_files
from ttsweb.work import Kind
from voices import transitions
from voices.models import ClipCodes, ReferenceClip, StoredClip, Voice, VoiceVersion
from voices.submit import NewClip, create_version
from workers.process.claiming import take, take_work
from workers.site import clips as clips_module

pytestmark = pytest.mark.django_db(transaction=True)


def encode(process: MiniatureProcess, voice: Voice) -> VoiceVersion:
    """Encode what waits and return the voice's newest version."""
    process.encode_all()
    return VoiceVersion.objects.filter(voice=voice).latest("number")


def inline(content: bytes) -> RenderJob:
    """Return a job with a clip of its own."""
    return submit(text="Hello there.", reference=NewClip(transcript="Said.", content=content))


def test_version_gets_ready_with_its_measures(process: MiniatureProcess, voice: Voice) -> None:
    version = encode(process, voice)

    stored = StoredClip.objects.get()
    codes = ClipCodes.objects.get()
    assert version.status == "ready"
    assert version.codec_fingerprint == process.host.engine.codec_fingerprint
    assert version.frames == codes.frames > 0
    assert [warning["code"] for warning in version.warnings] == ["clip_short"]
    assert stored.measures["duration_seconds"] == 1.5
    assert default_storage.exists(stored.original_key)
    assert stored.used_key.endswith(".flac") and default_storage.exists(stored.used_key)
    assert len(process.held) == 0


def test_version_of_several_clips_counts_all_their_frames(process: MiniatureProcess) -> None:
    version = encode(process, new_voice("Two clips", ("One.", 1.5), ("Two.", 2.0)))

    assert version.frames == sum(ClipCodes.objects.values_list("frames", flat=True))
    assert counter("encoder_run") == 2


def test_same_clip_in_another_voice_or_with_another_transcript_is_not_encoded_again(
    process: MiniatureProcess, voice: Voice, clip_bytes: bytes
) -> None:
    encode(process, voice)

    create_version(voice, [NewClip(transcript="Other words.", content=clip_bytes)])
    assert encode(process, new_voice("Bob", content=clip_bytes)).status == "ready"

    assert set(VoiceVersion.objects.values_list("status", flat=True)) == {"ready"}
    assert counter("encoder_run") == 1


def test_bad_clip_fails_its_version_and_the_jobs_that_wait(process: MiniatureProcess) -> None:
    job = inline(wav_bytes(np.zeros((36_000, 1), dtype=np.float32)))

    process.encode_all()

    found = fresh(job, "status", "error_code", "error_message")
    assert found == ("failed", "clip_silent", "The clip is silent; record it again.")
    assert VoiceVersion.objects.get().error_code == "clip_silent"
    assert not StoredClip.objects.exists(), "the reference that came with the job was kept"


def test_version_that_becomes_ready_rings_for_the_jobs_that_wait(
    process: MiniatureProcess, clip_bytes: bytes
) -> None:
    segment = inline(clip_bytes).segments.get()
    assert segment.sent_at is None

    process.encode_all()

    assert fresh(segment, "sent_at") != (None,)


def test_clip_that_another_worker_encodes_is_waited_for(
    process: MiniatureProcess, voice: Voice
) -> None:
    codec = process.host.engine.codec_fingerprint
    transitions.claim_codes(StoredClip.objects.get(), codec, worker="another")

    version = encode(process, voice)

    assert (version.status, version.attempts) == ("pending", 0)
    assert counter("encoder_run") == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_outage_spends_no_attempt(
    process: MiniatureProcess, voice: Voice, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clips_module, "store_flac", Mock(side_effect=OSError(number, "no")))
    version = encode(process, voice)

    assert (version.status, version.attempts) == ("pending", 0)
    assert process.may_claim is (number != errno.ENOSPC)
    assert ("disk is full" in process.status.detail) is (number == errno.ENOSPC)


def test_engine_error_that_may_pass_is_tried_again_and_then_fails(
    process: MiniatureProcess, voice: Voice, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.MAX_ATTEMPTS = 2
    error = DeviceOutOfMemoryError("The device has no memory left.")
    monkeypatch.setattr(process.host.engine, "encode_reference", Mock(side_effect=error))
    first = encode(process, voice)
    assert (first.status, first.attempts) == ("pending", 1)
    assert first.not_before > first.created_at

    VoiceVersion.objects.update(not_before=first.created_at)
    take_work(process)
    process.run_all()

    failed = VoiceVersion.objects.get()
    assert (failed.status, failed.error_code) == ("failed", "out_of_memory")


def test_clip_whose_file_is_gone_says_so(
    process: MiniatureProcess, voice: Voice, settings: Settings
) -> None:
    settings.MAX_ATTEMPTS = 1
    default_storage.delete(StoredClip.objects.get().original_key)

    version = encode(process, voice)

    assert (version.status, version.error_code) == ("failed", "clip_lost")


def test_version_without_clips_is_not_tried_for_ever(
    process: MiniatureProcess, voice: Voice
) -> None:
    ReferenceClip.objects.all().delete()

    assert encode(process, voice).error_code == "clip_removed"


def test_clip_removed_while_it_is_encoded_leaves_nothing_behind(
    process: MiniatureProcess, clip_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = inline(clip_bytes)
    real = process.host.engine.encode_reference

    def cancel_meanwhile(*arguments: object) -> object:
        cancel_job(job.pk)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(process.host.engine, "encode_reference", cancel_meanwhile)
    process.encode_all()

    assert stored_files() == []
    assert fresh(job, "status") == (RenderJob.Status.CANCELLED,)


def test_only_one_of_two_workers_takes_a_version(
    make_process: Callable[..., MiniatureProcess], voice: Voice
) -> None:
    first, second = make_process(name="w1"), make_process(name="w2")

    assert take(first, Kind.VERSION) == 1
    assert take(second, Kind.VERSION) == 0
