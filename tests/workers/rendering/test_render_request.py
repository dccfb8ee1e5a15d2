"""A take's name depends on all that a rendering depends on, and on nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from django.db import connection

from synth.contract import Sampling, content_key
from synth.models import Segment
from synth.transitions.takes import place_in_series, retake_seed
from tests.workers.clips import wav_bytes
from tests.workers.conftest import MiniatureProcess
from tests.workers.pairs import submit
from ttsweb.work import Kind
from voices.models import ClipCodes, ReferenceClip, Voice, VoiceVersion
from voices.removal import delete_voice
from voices.submit import NewClip, create_voice
from workers.process.claiming import take, take_segments
from workers.rendering.render_request import (
    CodesMissingError,
    ReferenceRemovedError,
    RenderRequest,
    SpeakerUnknownError,
    VoiceSilencedError,
    build_requests,
    sampling_of_retake,
)


@pytest.fixture
def segment(ready: Voice) -> Segment:
    """A segment that its encoded voice can speak."""
    return Segment.objects.get(job=submit(ready, text="Hello."))


def build(process: MiniatureProcess, ids: Sequence[int]) -> dict[int, RenderRequest | Exception]:
    assert process.codes is not None
    return build_requests(ids, process.codes, process.host.engine)


def built(process: MiniatureProcess, segment: Segment) -> RenderRequest | Exception:
    return build(process, [segment.pk])[segment.pk]


def other_voice() -> Voice:
    """A second voice, to be encoded."""
    clip = NewClip(transcript="Other.", content=wav_bytes(seconds=1.3))
    return create_voice(name="Other", consent_statement="Yes.", by="me", clips=[clip])


@pytest.mark.django_db(transaction=True)
def test_clips_of_a_voice_become_one_reference(process: MiniatureProcess) -> None:
    clips = [
        NewClip(transcript="First.", content=wav_bytes(seconds=1.2)),
        NewClip(transcript="Second.", content=wav_bytes(seconds=1.7)),
    ]
    voice = create_voice(name="Two", consent_statement="Yes.", by="me", clips=clips)
    take(process, Kind.VERSION)
    process.run_all()
    segment = Segment.objects.get(job=submit(voice, text="Hello."))

    request = built(process, segment)

    assert isinstance(request, RenderRequest)
    (reference,) = request.spec.references
    version = voice.current_version
    assert reference.text == "First. Second."
    assert version is not None and reference.codes.shape == (10, version.frames)
    assert request.spec.sampling.seed == segment.seed


@pytest.mark.django_db(transaction=True)
def test_missing_codes_name_the_version(process: MiniatureProcess, segment: Segment) -> None:
    ClipCodes.objects.all().delete()
    assert process.codes is not None
    process.codes.cache.evict(ReferenceClip.objects.get().stored.fingerprint)

    error = built(process, segment)

    assert isinstance(error, CodesMissingError)
    assert error.version_id == VoiceVersion.objects.get().pk


@pytest.mark.django_db(transaction=True)
def test_removed_clips_are_an_error_for_good(process: MiniatureProcess, segment: Segment) -> None:
    ReferenceClip.objects.all().delete()

    error = built(process, segment)

    assert isinstance(error, ReferenceRemovedError)
    assert not error.retryable


@pytest.mark.django_db(transaction=True)
def test_voice_deleted_after_the_claim_has_the_code_of_every_deleted_voice(
    process: MiniatureProcess, ready: Voice, segment: Segment
) -> None:
    take_segments(process)
    delete_voice(ready)

    error = built(process, segment)

    assert isinstance(error, VoiceSilencedError)
    assert error.code == "voice_deleted"
    assert ready.name in str(error)


@pytest.mark.django_db(transaction=True)
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


@pytest.mark.django_db(transaction=True)
def test_failure_of_one_voice_leaves_the_requests_of_others(
    process: MiniatureProcess, voice: Voice
) -> None:
    other = other_voice()
    take(process, Kind.VERSION)
    process.run_all()
    good, bad = (Segment.objects.get(job=submit(one, text="Hello.")) for one in (voice, other))
    ReferenceClip.objects.filter(version__voice=other).delete()

    requests = build(process, [good.pk, bad.pk, 10**9])

    assert isinstance(requests[good.pk], RenderRequest)
    assert isinstance(requests[bad.pk], ReferenceRemovedError)
    assert set(requests) == {good.pk, bad.pk}


@pytest.mark.django_db(transaction=True)
def test_each_segment_has_the_voice_of_its_speaker_alone(
    process: MiniatureProcess, voice: Voice
) -> None:
    other = other_voice()
    take(process, Kind.VERSION)
    process.run_all()
    said = "Both of them say this."
    text = f"<|speaker:0|>{said} <|speaker:7|>{said}"
    both = submit(text=text, voices={0: voice, 7: other})
    swapped = submit(text=text, voices={7: voice, 0: other})

    requests = build(process, list(Segment.objects.values_list("pk", flat=True)))

    ada, bob = (requests[segment.pk] for segment in both.segments.all())
    assert isinstance(ada, RenderRequest) and isinstance(bob, RenderRequest)
    assert [one.text for one in ada.spec.references] == ["Said in the clip."]
    assert [one.text for one in bob.spec.references] == ["Other."]
    assert ada.spec.text == bob.spec.text == said
    assert ada.clips != bob.clips
    assert ada.content_key == content_key(ada.spec, process.host.engine.engine_class)
    bob_first = requests[swapped.segments.all()[0].pk]
    assert isinstance(bob_first, RenderRequest)
    assert [one.text for one in bob_first.spec.references] == ["Other."]


@pytest.mark.django_db(transaction=True)
def test_another_speakers_voice_is_no_part_of_a_takes_name(
    process: MiniatureProcess, voice: Voice
) -> None:
    other = other_voice()
    take(process, Kind.VERSION)
    process.run_all()
    said = "Only the first one says this."
    alone = submit(voice, text=said)
    together = submit(text=f"{said} <|speaker:1|>And this the other.", voices={0: voice, 1: other})

    requests = build(process, list(Segment.objects.values_list("pk", flat=True)))

    keys = [
        request.content_key
        for job in (alone, together)
        if isinstance(request := requests[job.segments.all()[0].pk], RenderRequest)
    ]
    assert len(keys) == 2
    assert len(set(keys)) == 1


@pytest.mark.django_db(transaction=True)
def test_speaker_without_a_voice_is_an_error_and_not_spoken_by_another(
    process: MiniatureProcess, segment: Segment
) -> None:
    Segment.objects.update(speaker=3)

    error = built(process, segment)

    assert isinstance(error, SpeakerUnknownError)
    assert not error.retryable


@pytest.mark.django_db(transaction=True)
def test_queries_do_not_grow_with_the_segments(
    process: MiniatureProcess, ready: Voice, django_assert_num_queries: Any
) -> None:
    submit(ready, sentences=3)
    ids = list(Segment.objects.values_list("pk", flat=True))
    submit(ready, sentences=30, first=10)
    all_ids = list(Segment.objects.values_list("pk", flat=True))

    with django_assert_num_queries(4):
        few = build(process, ids)
    with django_assert_num_queries(4):
        many = build(process, all_ids)

    assert (len(few), len(many)) == (3, 33)


ASKED = Sampling(seed=7, temperature=0.8, top_p=0.8, top_k=30, max_frames=99)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_first_retakes_differ_by_their_seeds_alone(place: int) -> None:
    assert sampling_of_retake(ASKED, place) == ASKED


@pytest.mark.parametrize(
    ("place", "temperature", "top_p"),
    [(3, 0.9, 0.85), (4, 1.0, 0.9), (6, 1.2, 1.0), (8, 1.4, 1.0), (30, 1.4, 1.0)],
)
def test_later_ones_are_freer_up_to_a_bound(place: int, temperature: float, top_p: float) -> None:
    free = sampling_of_retake(ASKED, place)

    assert (free.temperature, free.top_p) == (temperature, top_p)
    assert (free.seed, free.top_k, free.max_frames) == (7, 30, 99)


def test_what_was_asked_freer_than_the_bound_stays() -> None:
    asked = Sampling(temperature=1.9, top_p=1.0)

    assert sampling_of_retake(asked, 5) == asked


def test_place_is_found_by_the_seed_whatever_order_the_takes_have() -> None:
    seeds = [5, retake_seed(5, 1), retake_seed(5, 2), 123]
    candidates = [{"seed": seed} for seed in seeds]

    places = [place_in_series(seed, candidates) for seed in seeds]
    assert places == [0, 1, 2, 0]
    assert place_in_series(retake_seed(5, 9), candidates) == 9
    assert place_in_series(5, []) == 0
