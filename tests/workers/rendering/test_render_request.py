"""A take's name depends on all that a rendering depends on, and on nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection

from synth.contract import Sampling, content_key
from synth.models import Segment
from synth.transitions.takes import place_in_series, retake_seed
from tests.workers.conftest import MiniatureProcess
from tests.workers.pairs import new_voice, submit
from voices.models import ClipCodes, ReferenceClip, Voice, VoiceVersion
from voices.objects import delete_voice
from workers.process.claiming import take_segments
from workers.rendering.render import (
    CodesMissingError,
    ReferenceRemovedError,
    RenderRequest,
    SpeakerUnknownError,
    VoiceSilencedError,
    build_requests,
    sampling_of_retake,
)

pytestmark = pytest.mark.django_db(transaction=True)
Built = RenderRequest | Exception


@pytest.fixture
def segment(ready: Voice) -> Segment:
    """A segment that its encoded voice can speak."""
    return submit(ready, text="Hello.").segments.get()


@pytest.fixture
def other(process: MiniatureProcess, voice: Voice) -> Voice:
    """A second voice; both are encoded."""
    made = new_voice("Other", ("Other.", 1.3))
    process.encode_all()
    return made


def build(process: MiniatureProcess, ids: Sequence[int] | None = None) -> dict[int, Built]:
    """Return the requests of some segments, or of all."""
    assert process.codes is not None
    pks = list(Segment.objects.values_list("pk", flat=True)) if ids is None else ids
    return build_requests(pks, process.codes, process.host.engine)


def built(process: MiniatureProcess, segment: Segment) -> Built:
    return build(process, [segment.pk])[segment.pk]


def request_of(requests: dict[int, Built], segment: Segment) -> RenderRequest:
    request = requests[segment.pk]
    assert isinstance(request, RenderRequest)
    return request


def texts(request: RenderRequest) -> list[str]:
    """Return the transcripts that a request speaks by."""
    return [one.text for one in request.spec.references]


def test_clips_of_a_voice_become_one_reference(process: MiniatureProcess) -> None:
    voice = new_voice("Two", ("First.", 1.2), ("Second.", 1.7))
    process.encode_all()
    segment = submit(voice, text="Hello.").segments.get()

    request = request_of(build(process), segment)

    (reference,) = request.spec.references
    version = voice.current_version
    assert reference.text == "First. Second."
    assert version is not None and reference.codes.shape == (10, version.frames)
    assert request.spec.sampling.seed == segment.seed


def test_missing_codes_name_the_version(process: MiniatureProcess, segment: Segment) -> None:
    ClipCodes.objects.all().delete()
    assert process.codes is not None
    process.codes.cache.evict(ReferenceClip.objects.get().stored.fingerprint)

    error = built(process, segment)

    assert isinstance(error, CodesMissingError)
    assert error.version_id == VoiceVersion.objects.get().pk


def test_removed_clips_are_an_error_for_good(process: MiniatureProcess, segment: Segment) -> None:
    ReferenceClip.objects.all().delete()

    error = built(process, segment)

    assert isinstance(error, ReferenceRemovedError)
    assert not error.retryable


def test_voice_deleted_after_the_claim_has_the_code_of_every_deleted_voice(
    process: MiniatureProcess, ready: Voice, segment: Segment
) -> None:
    take_segments(process)
    delete_voice(ready)

    error = built(process, segment)

    assert isinstance(error, VoiceSilencedError)
    assert error.code == "voice_deleted"
    assert ready.name in str(error)


def test_voice_deleted_in_the_middle_of_looking_it_up_is_no_removed_clip(
    process: MiniatureProcess, ready: Voice, segment: Segment
) -> None:
    take_segments(process)
    looks: list[str] = []

    def delete_between_two_looks(execute: Any, sql: str, *given: Any) -> Any:
        if any(f'FROM "{table}"' in sql for table in ("voices_referenceclip", "synth_jobvoice")):
            looks.append(sql)
            if len(looks) == 2:
                delete_voice(ready)
        return execute(sql, *given)

    with connection.execute_wrapper(delete_between_two_looks):
        error = built(process, segment)

    assert isinstance(error, VoiceSilencedError) and len(looks) > 2
    assert error.code == "voice_deleted"


def test_failure_of_one_voice_leaves_the_requests_of_others(
    process: MiniatureProcess, voice: Voice, other: Voice
) -> None:
    good, bad = (submit(one, text="Hello.").segments.get() for one in (voice, other))
    ReferenceClip.objects.filter(version__voice=other).delete()

    requests = build(process, [good.pk, bad.pk, 10**9])

    assert request_of(requests, good)
    assert isinstance(requests[bad.pk], ReferenceRemovedError)
    assert set(requests) == {good.pk, bad.pk}


def test_each_segment_has_the_voice_of_its_speaker_alone(
    process: MiniatureProcess, voice: Voice, other: Voice
) -> None:
    said = "Both of them say this."
    text = f"<|speaker:0|>{said} <|speaker:7|>{said}"
    both = submit(text=text, voices={0: voice, 7: other})
    swapped = submit(text=text, voices={7: voice, 0: other})

    requests = build(process)

    ada, bob = (request_of(requests, segment) for segment in both.segments.all())
    assert (texts(ada), texts(bob)) == (["Said in it."], ["Other."])
    assert ada.spec.text == bob.spec.text == said
    assert ada.clips != bob.clips
    assert ada.content_key == content_key(ada.spec, process.host.engine.engine_class)
    assert texts(request_of(requests, swapped.segments.all()[0])) == ["Other."]


def test_another_speakers_voice_is_no_part_of_a_takes_name(
    process: MiniatureProcess, voice: Voice, other: Voice
) -> None:
    said = "Only the first one says this."
    alone = submit(voice, text=said)
    together = submit(text=f"{said} <|speaker:1|>And this the other.", voices={0: voice, 1: other})

    requests = build(process)

    one, two = (request_of(requests, job.segments.all()[0]) for job in (alone, together))
    assert one.content_key == two.content_key


def test_speaker_without_a_voice_is_an_error_and_not_spoken_by_another(
    process: MiniatureProcess, segment: Segment
) -> None:
    Segment.objects.update(speaker=3)

    error = built(process, segment)

    assert isinstance(error, SpeakerUnknownError)
    assert not error.retryable


def test_queries_do_not_grow_with_the_segments(
    process: MiniatureProcess, ready: Voice, django_assert_num_queries: Any
) -> None:
    for number, all_of_them in ((3, 3), (30, 33)):
        submit(ready, sentences=number, first=number)
        ids = list(Segment.objects.values_list("pk", flat=True))
        with django_assert_num_queries(4):
            requests = build(process, ids)
        assert len(requests) == all_of_them


ASKED = Sampling(seed=7, temperature=0.8, top_p=0.8, top_k=30, max_frames=99)


FREEST = Sampling(temperature=1.9, top_p=1.0)


@pytest.mark.parametrize(
    ("asked", "place", "temperature", "top_p"),
    [
        *[(ASKED, place, 0.8, 0.8) for place in range(3)],  # these differ by their seeds alone
        (ASKED, 3, 0.9, 0.85),
        (ASKED, 4, 1.0, 0.9),
        (ASKED, 6, 1.2, 1.0),
        (ASKED, 8, 1.4, 1.0),
        (ASKED, 30, 1.4, 1.0),
        (FREEST, 5, 1.9, 1.0),
    ],
)
def test_later_retakes_are_freer_up_to_a_bound(
    asked: Sampling, place: int, temperature: float, top_p: float
) -> None:
    expected = replace(asked, temperature=temperature, top_p=top_p)
    assert sampling_of_retake(asked, place) == expected


def test_place_is_found_by_the_seed_whatever_order_the_takes_have() -> None:
    seeds = [5, retake_seed(5, 1), retake_seed(5, 2), 123]
    candidates = [{"seed": seed} for seed in seeds]

    places = [place_in_series(seed, candidates) for seed in seeds]
    assert places == [0, 1, 2, 0]
    assert place_in_series(retake_seed(5, 9), candidates) == 9
    assert place_in_series(5, []) == 0
