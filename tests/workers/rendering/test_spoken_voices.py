"""What the engine keeps of a deleted voice is freed, at the latest when nothing speaks with it."""

from __future__ import annotations

import uuid

import numpy as np
import pytest

from synth.contract import Reference
from tests.workers.clips import wav_bytes
from tests.workers.conftest import MiniatureProcess
from tests.workers.pairs import submit
from voices.submit import NewClip, create_voice
from workers.process.claiming import take, take_segments
from workers.process.held_claims import HeldClaim, Kind
from workers.process.pump import forget_evicted
from workers.rendering import rendered as spoken_voices
from workers.rendering.rendered import References, SpokenVoices


def reference(text: str) -> Reference:
    return Reference(text, np.zeros((10, 4), dtype=np.int16))


def segment(pk: int) -> HeldClaim:
    return HeldClaim(Kind.SEGMENT, pk, uuid.uuid4())


def test_only_voices_with_an_evicted_clip_are_forgotten_and_once() -> None:
    spoken, forgotten = SpokenVoices(), list[References]()
    ada, bob = (reference("Ada"),), (reference("Bob"),)
    spoken.note(("a1", "a2"), ada)
    spoken.note(("b1",), bob)

    for _ in range(2):
        spoken.forget(["a2", "unknown"], [], forgotten.append)

    assert forgotten == [ada]
    assert len(spoken) == 1


def test_voice_that_is_still_being_spoken_is_forgotten_again_when_its_last_segment_ends() -> None:
    spoken, forgotten = SpokenVoices(), list[References]()
    ada = (reference("Ada"),)
    spoken.note(("a1",), ada)
    first, second, later = segment(1), segment(2), segment(3)

    spoken.forget(["a1"], [first, second], forgotten.append)
    assert forgotten == [ada]
    spoken.forget([], [second, later], forgotten.append)
    assert forgotten == [ada]
    spoken.forget([], [later], forgotten.append)
    assert forgotten == [ada, ada]
    spoken.forget([], [], forgotten.append)
    assert forgotten == [ada, ada]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spoken_voices, "MOST_VOICES", 2)
    spoken, forgotten = SpokenVoices(), list[References]()
    for name in ("a", "b", "a", "c"):
        spoken.note((name,), (reference(name),))

    spoken.forget(["a", "b", "c"], [], forgotten.append)

    assert [one[0].text for one in forgotten] == ["a", "c"]


@pytest.mark.django_db(transaction=True)
def test_engine_lets_go_of_an_evicted_voice_and_of_no_other(process: MiniatureProcess) -> None:
    # The engine outlives a test: these transcripts make prefixes that it cannot hold already.
    voice, other = (
        create_voice(name=name, consent_statement="Yes.", by="me", clips=[clip])
        for name, clip in (
            ("Leaver", NewClip(transcript="Evicted soon.", content=wav_bytes(seconds=1.1))),
            ("Stayer", NewClip(transcript="Held on to.", content=wav_bytes(seconds=1.3))),
        )
    )
    take(process, Kind.VERSION)
    process.run_all()
    before = process.host.engine.describe()["prefix_cache"]["prefixes"]
    for one in (voice, other):
        submit(one, text="Ox.")
    take_segments(process)
    process.run_all()
    assert process.host.engine.describe()["prefix_cache"]["prefixes"] == before + 2

    fingerprint = voice.versions.get().clips.get().stored.fingerprint
    forget_evicted(process, [fingerprint])
    submit(other, text="Ox two.")  # when it has ended, the engine has heard of what was before
    take_segments(process)
    process.run_all()

    assert process.host.engine.describe()["prefix_cache"]["prefixes"] == before + 1
