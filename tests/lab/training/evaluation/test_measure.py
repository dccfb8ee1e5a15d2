"""A perfect speaker reaches every figure, one that says something else reaches none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from lab.training.evaluation.measure import Evaluation
from lab.training.evaluation.scores import SUBJECTS, Figure
from lab.training.evaluation.speaking import Spoken, Voices, control_wave
from lab.training.evaluation.spectra import Wave
from lab.training.speakers import DEMO, Speaker

pytestmark = pytest.mark.evaluation

Say = Callable[[str, Speaker], Spoken]


class Parrot:
    """Say what is asked as a function does it; the codec changes nothing."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def say(self, text: str, speaker: Speaker, seed: int) -> Spoken:
        """Return the speech."""
        return self._say(text, speaker)

    def round_trip(self, wave: Wave) -> Wave:
        """Return the wave."""
        return wave


def evaluate(say: Say, *subjects: str, most: int = 1) -> Evaluation:
    """Return the evaluation of the first sentence of each kind."""
    evaluation = Evaluation(cast("Voices", Parrot(say)), set(subjects), most, lambda line: None)
    evaluation.run()
    return evaluation


def figures_of(say: Say, *subjects: str, most: int = 1) -> dict[str, Figure]:
    """Return the figures over the first sentence of each kind."""
    return evaluate(say, *subjects, most=most).scores.figures()


def say_well(text: str, speaker: Speaker) -> Spoken:
    """Return the teacher's speech a tenth higher and longer."""
    return Spoken(control_wave(text, speaker), True)


def say_otherwise(text: str, speaker: Speaker) -> Spoken:
    """Return another text, by another speaker, an octave lower, and as long as the right one."""
    other = replace(DEMO[1 if speaker.teacher != DEMO[1].teacher else 0], name="other", pitch=0.5)
    size = len(control_wave(text, speaker))
    wave = control_wave("Quite another thing was said by somebody else. " * 5, other)
    return Spoken(np.resize(wave, size).astype(np.float32), True)


@pytest.fixture(scope="module")
def perfect() -> Evaluation:
    """Return what a perfect speaker reaches in everything."""
    return evaluate(say_well, *SUBJECTS)


@pytest.mark.thorough
def test_clean_speech_reaches_everything(perfect: Evaluation) -> None:
    figures = perfect.scores.figures()
    verdicts = {name: one.verdict(name) for name, one in figures.items()}
    for name in ("words_wrong", "words_wrong_book"):  # a changed speaker is heard a little worse
        assert verdicts.pop(name) and figures[name].value < 0.35
    assert verdicts.pop("length_ratio") == ""
    assert set(verdicts.values()) == {"aim"}
    assert figures["length_ratio"].value == pytest.approx(1.1, abs=0.05)
    assert figures["speaker_of_20"].teacher == figures["numbers_of_10"].teacher == 1
    assert figures["words_wrong"].count == 3 * 9


@pytest.mark.thorough
def test_its_waves_and_melodies_are_there_to_be_drawn(perfect: Evaluation) -> None:
    assert len(perfect.pictures.waves) == len(perfect.pictures.melodies) == 1
    assert perfect.pictures.melodies[0].melodies.correlation > 0.8
    slt = perfect.pitches[DEMO[0].name][0]
    assert 100 < slt < 300


@pytest.mark.thorough
def test_another_sentence_in_another_voice_is_found_out() -> None:
    figures = figures_of(say_otherwise, "words", "pitch", "speaker", "ends", "numbers")
    exact = ("speaker_of_20", "long_said_to_the_end", "pitch_within_20")
    assert {name: figures[name].value for name in exact} == dict.fromkeys(exact, 0)
    assert figures["words_wrong"].value > 0.7 > 0.3 > (figures["words_wrong"].teacher or 0)
    assert figures["pitch_contour"].value < 0.5 < 0.9 < (figures["pitch_contour"].teacher or 0)
    for name in ("words_wrong", "words_wrong_book", "numbers_of_10"):
        assert figures[name].verdict(name) == "short"


def cut(text: str, speaker: Speaker) -> Spoken:
    """Return a sentence without its last two words."""
    return say_well(" ".join(text.split()[:-2]), speaker)


def repeat(text: str, speaker: Speaker) -> Spoken:
    """Return a sentence whose last two words are said twice."""
    return say_well(" ".join([*text.split(), *text.split()[-2:]]), speaker)


def stretch(factor: float, *, ended: bool = True) -> Say:
    """Return what says a sentence, cut or followed by silence."""

    def say(text: str, speaker: Speaker) -> Spoken:
        wave = say_well(text, speaker).wave
        size = int(len(wave) * factor)
        return Spoken(np.pad(wave, (0, max(0, size - len(wave))))[:size], ended)

    return say


@pytest.mark.parametrize(
    ("say", "early", "runaway"),
    [
        (cut, 0, 0), (repeat, 0, 0), (stretch(0.5), 1, 0), (stretch(2.0), 0, 1),
        (stretch(1, ended=False), 0, 1),
    ],
)  # fmt: skip
def test_a_long_sentence_that_does_not_end_right_does_not_count(
    say: Say, early: float, runaway: float
) -> None:
    figures = figures_of(say, "ends")
    assert figures["long_said_to_the_end"].value == 0
    assert figures["long_said_to_the_end"].teacher == 1
    assert (figures["early"].value, figures["runaway"].value) == (early, runaway)


@pytest.mark.thorough
def test_nothing_said_is_wrong_everywhere() -> None:
    silent: dict[str, Any] = {
        name: figure.verdict(name)
        for name, figure in figures_of(
            lambda text, speaker: Spoken(np.zeros(0, np.float32), True), *SUBJECTS
        ).items()
        if name not in ("runaway", "length_ratio")
    }
    assert silent.pop("speaker_of_20") in ("short", "aim")  # all are as near
    assert set(silent.values()) == {"short"}
