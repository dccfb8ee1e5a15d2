"""The screen lets ordinary speech of the built-in model through and finds each bad take."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import numpy as np
import pytest
import soundfile

from synth.contract import FinishReason, Reference, RenderSpec, Sampling, SegmentAudio
from synth.engine import Engine, EngineConfig
from tests.workers.commands import CLIP, DEMO, TRANSCRIPT
from workers.rendering.quality import (
    USUAL_LETTERS_PER_SECOND,
    Check,
    expected_seconds,
    letters_of,
    most_repeats,
    num_cues,
    pace_of,
    screen,
)

SENTENCES = (
    "A storm came over the hill at night.",
    "I looked at the white stone by the door.",
    "There was nothing left but the sound of water.",
    "He took the lamp and went down.",
    "We saw the old machine in the garden.",
    "Hello there.",
)
Bad = Callable[[SegmentAudio], SegmentAudio]
Spoken = list[tuple[RenderSpec, SegmentAudio]]


@pytest.fixture(scope="module")
def spoken() -> Iterator[Spoken]:
    """Sentences as the built-in model speaks them."""
    engine = Engine.load(EngineConfig(checkpoint=DEMO, device="cpu", slots=4, threads=1))
    try:
        waveform, rate = soundfile.read(CLIP, dtype="float32")
        reference = Reference(TRANSCRIPT, engine.encode_reference(waveform, rate))
        asked: list[tuple[RenderSpec, Future[SegmentAudio]]] = []
        for number, text in enumerate(SENTENCES):
            # With seed 1 it holds the first sound of a sentence for 0.7 s, which is found rightly.
            sampling = Sampling(seed=100 + number, temperature=0.7, max_frames=400)
            spec = RenderSpec(text, reference, sampling)
            asked.append((spec, engine.submit(spec)))
        yield [(spec, future.result()) for spec, future in asked]
    finally:
        engine.close()


def of(rendered: SegmentAudio, codes: object, audio: object) -> SegmentAudio:
    return dataclasses.replace(
        rendered,
        codes=np.ascontiguousarray(codes, dtype=np.int16),
        audio=np.ascontiguousarray(audio, dtype=np.float32),
    )


def part(rendered: SegmentAudio, first: int, last: int) -> SegmentAudio:
    """Return the frames from first up to last, with their audio."""
    hop = len(rendered.audio) // rendered.codes.shape[1]
    return of(rendered, rendered.codes[:, first:last], rendered.audio[first * hop : last * hop])


def joined(*parts: SegmentAudio) -> SegmentAudio:
    codes = np.concatenate([one.codes for one in parts], axis=1)
    return of(parts[0], codes, np.concatenate([one.audio for one in parts]))


def quiet(rendered: SegmentAudio, *, seconds: float) -> SegmentAudio:
    """Return so much digital silence, in frames that are all alike."""
    hop = len(rendered.audio) // rendered.codes.shape[1]
    frames = round(seconds * rendered.sample_rate / hop)
    codes = np.repeat(rendered.codes[:, :1], frames, axis=1)
    return of(rendered, codes, np.zeros(frames * hop))


def noise(rendered: SegmentAudio) -> SegmentAudio:
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 256, rendered.codes.shape)
    return of(rendered, codes, rng.normal(0, 0.1, len(rendered.audio)))


def stuck(rendered: SegmentAudio) -> SegmentAudio:
    """Return a sentence that stays at one sound for a second and a half in its middle."""
    middle = rendered.codes.shape[1] // 2
    level = np.abs(rendered.audio).reshape(rendered.codes.shape[1], -1).max(axis=1)
    loud = middle - 5 + int(level[middle - 5 : middle + 5].argmax())
    held = part(rendered, loud, loud + 1)
    return joined(part(rendered, 0, loud), *[held] * 32, part(rendered, loud, 10_000))


BAD: dict[str, Bad] = {
    "silent": lambda one: of(one, one.codes, one.audio * 1e-4),
    "mostly_silence": lambda one: joined(part(one, 0, 20), quiet(one, seconds=2.5)),
    "too_short": lambda one: part(one, 0, one.codes.shape[1] // 3),
    "too_long": lambda one: joined(*[one] * 4),
    "leading_silence": lambda one: joined(quiet(one, seconds=1.5), one),
    "trailing_silence": lambda one: joined(one, quiet(one, seconds=1.5)),
    "long_pause": lambda one: joined(part(one, 0, 20), quiet(one, seconds=2), part(one, 20, 999)),
    "clipping": lambda one: of(one, one.codes, np.clip(one.audio * 10, -1, 1)),
    "noise": noise,
    "repetition": lambda one: joined(part(one, 0, 20), *[part(one, 20, 30)] * 5),
    "stuck": stuck,
    "frame_limit": lambda one: dataclasses.replace(one, finish_reason=FinishReason.FRAME_LIMIT),
}


def test_ordinary_speech_is_not_suspicious(spoken: Spoken) -> None:
    for spec, rendered in spoken:
        found = screen(spec, rendered)

        assert (found.score, found.flags) == (1.0, []), spec.text


@pytest.mark.parametrize("flag", BAD)
def test_each_kind_of_bad_take_is_found(flag: str, spoken: Spoken) -> None:
    for spec, rendered in spoken[:2]:
        found = screen(spec, BAD[flag](rendered))

        assert flag in found.flags, spec.text
        assert 0 <= found.score < 1


def test_more_of_the_same_fault_has_a_lower_score(spoken: Spoken) -> None:
    spec, rendered = spoken[2]
    frames = rendered.codes.shape[1]

    scores = [screen(spec, part(rendered, 0, frames // share)).score for share in (1, 3, 6, 12)]

    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 4


def test_every_check_is_told_with_its_value_and_limit(spoken: Spoken) -> None:
    spec, rendered = spoken[0]

    def checks_of(audio: SegmentAudio) -> dict[str, tuple[float, float]]:
        measured = screen(spec, audio).measures["screen"]
        return {one["name"]: (one["value"], one["limit"]) for one in measured}

    checks = checks_of(BAD["trailing_silence"](rendered))

    own, _ = checks_of(rendered)["trailing_silence"]  # speech ends with a little itself
    value, limit = checks["trailing_silence"]
    assert set(BAD) - {"frame_limit"} == set(checks)
    assert value == pytest.approx(own + 1.5, abs=0.1)
    assert value > limit


def test_cue_in_the_text_makes_room_for_itself(spoken: Spoken) -> None:
    spec, rendered = spoken[0]
    paused = BAD["long_pause"](rendered)

    with_cue = dataclasses.replace(spec, text=f"[long pause] {spec.text}")

    assert "long_pause" in screen(spec, paused).flags
    assert screen(with_cue, paused).flags == []


def test_words_that_the_text_repeats_are_no_loop(spoken: Spoken) -> None:
    spec, rendered = spoken[0]
    looped = BAD["repetition"](rendered)
    text = "Storm, storm, storm, storm, storm came over the hill at night."

    assert "repetition" in screen(spec, looped).flags
    assert "repetition" not in screen(dataclasses.replace(spec, text=text), looped).flags


@pytest.mark.parametrize("frames", [0, 1, 2])
def test_take_of_hardly_a_frame_is_judged_as_well(frames: int, spoken: Spoken) -> None:
    spec, rendered = spoken[0]

    found = screen(spec, part(rendered, 0, frames))

    assert "too_short" in found.flags


@pytest.mark.parametrize(
    ("check", "is_flagged", "factor"),
    [
        (Check("x", 1.0, 1.0), False, 1.0),
        (Check("x", 2.0, 1.0), True, 0.4),
        (Check("x", 0.5, 1.0, is_least=True), True, 0.4),
        (Check("x", 0.0, 1.0, is_least=True), True, 0.01),
        (Check("x", 1.0, 1.0, is_least=True), False, 1.0),
    ],
)
def test_check_takes_the_more_from_the_score_the_farther_it_is_off(
    check: Check, is_flagged: bool, factor: float
) -> None:
    assert check.is_flagged is is_flagged
    assert check.factor == pytest.approx(factor)


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("Hello there.", 10),
        ("<|speaker:1|>Hello [laugh] there.", 10),
        ("In 1984", 2 + 16),
        ("5 %", 4 + 6),
        ("你好", 6),
        ("こんにちは", 10),
        ("안녕", 5),
        ("Привет", 6),
        ("naïve", 5),
        ("…", 0),
        ("", 0),
    ],
)
def test_letters_are_counted_by_how_long_they_take(text: str, letters: float) -> None:
    assert letters_of(text) == letters


def test_voice_speaks_as_fast_as_its_clips() -> None:
    reference = Reference("a" * 48, np.zeros((4, 86), dtype=np.int16))

    pace = pace_of([reference], seconds_per_frame=0.05)

    assert pace == pytest.approx(48 / 4)
    assert expected_seconds("b" * 24, pace) == pytest.approx(0.3 + 2)


@pytest.mark.parametrize(
    ("text", "frames", "pace"),
    [("a", 400, 9.0), ("a" * 400, 40, 20.0), ("", 40, USUAL_LETTERS_PER_SECOND)],
)
def test_clip_that_does_not_fit_its_transcript_moves_the_pace_within_bounds(
    text: str, frames: int, pace: float
) -> None:
    reference = Reference(text, np.zeros((4, frames), dtype=np.int16))

    assert pace_of([reference], seconds_per_frame=0.05) == pace


def test_cues_and_repeats_are_counted() -> None:
    assert num_cues("[laugh] Well, [long pause] yes.") == 2
    assert most_repeats("No, no, no, no!") == 4
    assert most_repeats("By and by and by and by we came.") == 3
    assert most_repeats("One after the other.") == 1
    assert most_repeats("") == 1
