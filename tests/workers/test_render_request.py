"""A take's name depends on all that a rendering depends on, and on nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from synth.contract import Reference, RenderSpec, Sampling
from synth.models import Segment
from tests.workers.clips import wav_bytes
from tests.workers.conftest import MiniatureProcess
from tests.workers.pairs import submit
from voices.models import ClipCodes, ReferenceClip, VoiceVersion
from voices.submit import NewClip, create_voice
from workers.claiming import take_versions
from workers.render_request import (
    CodesMissingError,
    ReferenceRemovedError,
    build_request,
    content_key,
    frame_cap,
)

CODES = np.arange(40, dtype=np.int16).reshape(10, 4)
SPEC = RenderSpec("Hello.", Reference("Said.", CODES), Sampling(seed=7))


@pytest.mark.parametrize(
    ("length", "frames"),
    [(0, 64), (4, 64), (5, 70), (100, 640), (334, 2044), (335, 2048), (999, 2048)],
)
def test_frame_cap_grows_with_the_text_between_its_bounds(length: int, frames: int) -> None:
    assert frame_cap("x" * length) == frames


def test_same_request_has_the_same_name() -> None:
    again = RenderSpec("Hello.", Reference("Said.", CODES.copy()), Sampling(seed=7))

    assert content_key(SPEC, "m") == content_key(again, "m")


@pytest.mark.parametrize(
    "other",
    [
        replace(SPEC, text="Hello!"),
        replace(SPEC, reference=None),
        replace(SPEC, reference=Reference("Said!", CODES)),
        replace(SPEC, reference=Reference("Said.", CODES + np.int16(1))),
        replace(SPEC, reference=Reference("Said.", CODES.reshape(4, 10))),
        replace(SPEC, reference=(Reference("Said.", CODES), Reference("Said.", CODES))),
        replace(SPEC, sampling=Sampling(seed=8)),
        replace(SPEC, sampling=Sampling(seed=7, temperature=0.81)),
        replace(SPEC, sampling=Sampling(seed=7, top_p=0.81)),
        replace(SPEC, sampling=Sampling(seed=7, top_k=31)),
        replace(SPEC, sampling=Sampling(seed=7, max_frames=1025)),
    ],
    ids=lambda spec: "",
)
def test_any_difference_gives_another_name(other: RenderSpec) -> None:
    assert content_key(SPEC, "m") != content_key(other, "m")


def test_another_model_gives_another_name() -> None:
    assert content_key(SPEC, "m") != content_key(SPEC, "n")


@pytest.mark.django_db(transaction=True)
def test_clips_of_a_voice_become_one_reference(process: MiniatureProcess) -> None:
    clips = [
        NewClip(transcript="First.", content=wav_bytes(seconds=1.2)),
        NewClip(transcript="Second.", content=wav_bytes(seconds=1.7)),
    ]
    voice = create_voice(name="Two", consent_statement="Yes.", by="me", clips=clips)
    take_versions(process)
    process.run_all()
    segment = Segment.objects.select_related("job").get(job=submit(voice, text="Hello."))

    assert process.codes is not None
    request = build_request(segment, process.codes, process.host.engine)

    (reference,) = request.spec.references
    version = voice.current_version
    assert reference.text == "First. Second."
    assert version is not None and reference.codes.shape == (10, version.frames)
    assert request.spec.sampling.seed == segment.seed


@pytest.mark.django_db(transaction=True)
def test_missing_codes_name_the_version(process: MiniatureProcess, voice: object) -> None:
    take_versions(process)
    process.run_all()
    segment = Segment.objects.select_related("job").get(job=submit(voice, text="Hello."))  # type: ignore[arg-type]
    ClipCodes.objects.all().delete()
    assert process.codes is not None
    process.codes.cache.evict(ReferenceClip.objects.get().stored.fingerprint)

    with pytest.raises(CodesMissingError) as caught:
        build_request(segment, process.codes, process.host.engine)

    assert caught.value.version_id == VoiceVersion.objects.get().pk


@pytest.mark.django_db(transaction=True)
def test_removed_clips_are_an_error_for_good(process: MiniatureProcess, voice: object) -> None:
    take_versions(process)
    process.run_all()
    segment = Segment.objects.select_related("job").get(job=submit(voice, text="Hello."))  # type: ignore[arg-type]
    ReferenceClip.objects.all().delete()

    assert process.codes is not None
    with pytest.raises(ReferenceRemovedError) as caught:
        build_request(segment, process.codes, process.host.engine)

    assert not caught.value.retryable
