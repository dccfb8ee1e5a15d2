"""Texts and voices as a person names them on the command line."""

from __future__ import annotations

import pytest

from synth.models import RenderJob
from tests.factories import make_voice
from ttsweb.commands.base import StepError
from workers.local.speak import NAMES_LISTED, check_text, find_speaker, submit_text

pytestmark = pytest.mark.django_db


def code_of(error: pytest.ExceptionInfo[StepError]) -> str:
    return error.value.code


def test_voice_is_found_by_its_name_in_whatever_case_and_by_its_id() -> None:
    made = make_voice("Ada")
    for spelling in ("Ada", "ADA", "ada", str(made.pk)):
        assert find_speaker(spelling) == (made, made.current_version)


def test_unknown_voice_lists_some_names_but_not_archived_ones() -> None:
    with pytest.raises(StepError, match=r"\./tts demo makes one"):
        find_speaker("Linus")
    make_voice("Ada")
    make_voice("Grace")
    make_voice("Old", archived=True)
    with pytest.raises(StepError, match=r"There are: Ada, Grace\.$") as caught:
        find_speaker("Linus")
    assert code_of(caught) == "voice_not_found"
    for index in range(NAMES_LISTED - 1):
        make_voice(f"Voice {index:02}")
    with pytest.raises(StepError, match=r"Voice 17 and more\.$"):
        find_speaker("Linus")


def test_voice_without_a_clip_is_told() -> None:
    make_voice("Ada", versions=0)
    with pytest.raises(StepError) as caught:
        find_speaker("Ada")
    assert code_of(caught) == "voice_not_ready"


@pytest.mark.parametrize("text", ["", " \n", "\x00binary"])
def test_text_that_is_refused_in_a_job_is_refused_at_once(text: str) -> None:
    voice = make_voice("Ada")
    with pytest.raises(StepError) as at_once:
        check_text(text)
    with pytest.raises(StepError) as in_a_job:
        submit_text(text, voice, owner=None, audio_format="wav")
    assert code_of(at_once) == code_of(in_a_job)
    assert str(at_once.value) == str(in_a_job.value)


def test_job_has_the_seed_and_the_format_that_were_asked_for() -> None:
    voice = make_voice()
    for seed in (-1, 2**63):
        with pytest.raises(StepError) as caught:
            submit_text("Hello.", voice, owner=None, audio_format="wav", seed=seed)
        assert code_of(caught) == "seed_invalid"
    assert RenderJob.objects.count() == 0
    job = submit_text("Hello.", voice, owner=None, audio_format="mp3", seed=2**63 - 1)
    assert (job.seed, job.format, job.owner) == (2**63 - 1, "mp3", None)
