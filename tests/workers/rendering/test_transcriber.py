"""Takes are heard by a transcriber that is plugged in; what goes wrong in it costs no take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from pytest_django import Settings

from synth.models import RenderJob, Segment, Take, WorkerStatus
from tests.factories import stored
from tests.workers.conftest import MiniatureProcess
from tests.workers.pairs import Pair, new_voice, submit, wait_encoded, wait_ended
from tests.workers.rendering.plugged import Parrot, Sleeper
from ttsweb.configuration.builders import transcriber_name
from ttsweb.configuration.env import SettingError
from voices.models import Voice
from workers.local.doctor import look_at_transcriber
from workers.rendering.transcriber import (
    MOST_HEARD_CHARS,
    TranscriberError,
    error_rate,
    make_transcriber,
)

pytestmark = pytest.mark.django_db
PLUGGED = "tests.workers.rendering.plugged"


def plug(process: MiniatureProcess, transcriber: Parrot) -> Parrot:
    """Let the process hear by this one."""
    process.speech._transcriber = transcriber
    return transcriber


def render(process: MiniatureProcess) -> None:
    """Render until no segment waits."""
    for _ in range(20):
        process.render_all()
        if not Segment.objects.filter(status=Segment.Status.QUEUED).exists():
            return
    raise AssertionError("a segment is taken again and again")


def take_of(segment: Segment | None = None) -> Take:
    """Return the take of a segment, or of the only one."""
    take = (segment or Segment.objects.get()).take
    assert take is not None
    return take


def test_what_is_heard_is_kept_with_the_take_and_the_wrong_one_is_flagged(
    process: MiniatureProcess, ready: Voice, settings: Settings
) -> None:
    settings.TRANSCRIBER = f"{PLUGGED}:parrot"
    process.speech.start()
    submit(ready, text="Ox one.\n\nA cow went by.", max_retakes=0, language="en")

    render(process)

    right, wrong = Segment.objects.order_by("pk")
    good, bad = take_of(right), take_of(wrong)
    assert (good.measures["asr_error"], good.quality_flags) == (0.0, [])
    assert good.measures["asr_text"] == "ox one"
    assert right.candidates == []
    assert (bad.measures["asr_error"], bad.quality_flags) == (1.0, ["asr_mismatch"])
    assert bad.quality_score == pytest.approx(0.8 * 0.35)
    assert {"name": "asr_mismatch", "value": 1.0, "limit": 0.35} in bad.measures["screen"]
    assert wrong.candidates[0]["heard"] == "ox one"
    assert process.status.detail == ""


def test_mismatch_is_followed_by_retakes_and_the_best_heard_is_kept(
    process: MiniatureProcess, ready: Voice
) -> None:
    heard = ["a cat sat there", "a cow sat there", "the dog ran off"]
    said = iter(heard)
    parrot = plug(process, Parrot(lambda: next(said)))
    submit(ready, text="A cow went by.", max_retakes=2, language="de")

    render(process)

    segment = Segment.objects.get()
    assert [one["heard"] for one in segment.candidates] == heard
    assert take_of(segment).measures["asr_error"] == 0.5  # the second one is the best
    assert segment.retakes == 2
    samples, rate, language = parrot.asked[0]
    assert samples > 0 and rate == process.host.engine.sample_rate and language == "de"


def test_audio_that_a_plug_in_spoils_is_stored_unspoilt(
    process: MiniatureProcess, ready: Voice
) -> None:
    plug(process, Parrot())
    submit(ready, text="Ox one.\n\nOx two.")

    render(process)

    assert [take_of(one).measures["peak_dbfs"] > -60 for one in Segment.objects.all()] == [True] * 2


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (Mock(side_effect=RuntimeError("no memory")), "RuntimeError: no memory"),
        (Mock(side_effect=SystemExit(3)), "SystemExit"),
        (lambda: None, "NoneType"),
        (lambda: b"ox one", "bytes"),
    ],
    ids=["raises", "exits", "nothing", "bytes"],
)
def test_failure_of_the_plug_in_is_told_and_costs_no_take(
    process: MiniatureProcess, ready: Voice, answer: Callable[[], Any], sentence: str
) -> None:
    parrot = plug(process, Parrot(answer))
    submit(ready, text="Ox one.")

    render(process)

    assert stored(Segment.objects.get(), "status", "retakes") == ("done", 0)
    assert "asr_error" not in take_of().measures
    assert sentence in process.status.detail
    assert process.may_claim

    parrot.answer = lambda: "ox two"
    submit(ready, text="Ox two.")
    render(process)

    assert process.status.detail == ""


def test_plug_in_that_hangs_is_left_behind_and_heard_again_when_it_is_back(
    process: MiniatureProcess, ready: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.rendering.transcriber.ASR_SECONDS", 0.05)
    sleeper = Sleeper()
    plug(process, sleeper)
    submit(ready, text="Ox one.\n\nOx two.")

    render(process)

    assert set(Segment.objects.values_list("status", flat=True)) == {"done"}
    assert len(sleeper.asked) == 1  # it is not asked again while it is busy
    assert "it took more than 0.05 s" in process.status.detail
    monkeypatch.setattr("workers.rendering.transcriber.ASR_SECONDS", 30.0)
    sleeper.woken.set()
    assert process.speech._last is not None
    process.speech._last.result(30)
    submit(ready, text="Ox one.", seed=3)
    render(process)
    assert len(sleeper.asked) == 2
    assert process.status.detail == ""


@pytest.mark.parametrize(
    "heard", ["ox\0 one", "ox one \ud800", "ox " * 100_000, "", "\n\n"], ids=range(5)
)
def test_whatever_text_comes_can_be_stored(
    process: MiniatureProcess, ready: Voice, heard: str
) -> None:
    plug(process, Parrot(lambda: heard))
    submit(ready, text="Ox one.", max_retakes=0)

    render(process)

    text = take_of().measures["asr_text"]
    assert "\0" not in text and len(text) <= MOST_HEARD_CHARS
    text.encode()


def test_text_without_words_is_not_judged(process: MiniatureProcess, ready: Voice) -> None:
    plug(process, Parrot())
    job = submit(ready, text="Ox one.", max_retakes=0)
    Segment.objects.filter(job=job).update(spoken_text="[laugh]")

    render(process)

    assert "asr_error" not in take_of().measures and take_of().quality_flags == []


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no_such_package.ears:make", "No module named 'no_such_package'"),
        (f"{PLUGGED}:nobody", "nobody"),
        (f"{PLUGGED}:NO_FACTORY", "cannot be called"),
        (f"{PLUGGED}:broken", "no model in /models"),
        (f"{PLUGGED}:leaving", "no licence was found"),
        (f"{PLUGGED}:without_method", "no method `transcribe"),
    ],
    ids=["module", "attribute", "no-factory", "raises", "leaves", "no-method"],
)
def test_what_cannot_be_used_is_told_by_name_and_reason(name: str, sentence: str) -> None:
    with pytest.raises(TranscriberError) as caught:
        make_transcriber(name)

    assert name in str(caught.value)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "name", ["ears", "ears:", ":make", "a b:make", "ears:make()", "ears.:make", "1a:b", "a:b:c"]
)
def test_name_that_is_none_stops_the_start(name: str) -> None:
    with pytest.raises(SettingError, match=r"package\.module:factory"):
        transcriber_name(name)


def test_doctor_tells_whether_it_is_there(settings: Settings) -> None:
    assert look_at_transcriber().level == "ok"
    settings.TRANSCRIBER = f"{PLUGGED}:parrot"
    assert look_at_transcriber().level == "ok"
    settings.TRANSCRIBER = "no_such_package:make"

    finding = look_at_transcriber()

    assert finding.level == "fail"
    assert "no_such_package" in finding.text


@pytest.mark.thorough
def test_worker_process_hears_by_its_setting(pair: Pair) -> None:
    pair.start_worker(TTS_TRANSCRIBER=f"{PLUGGED}:parrot").wait_ready()
    voice = new_voice()
    wait_encoded(voice)
    job = submit(voice, text="Ox one.\n\nA cow went by.", max_retakes=1)
    wait_ended(job)

    right, wrong = job.segments.order_by("pk")
    assert (take_of(right).quality_flags, right.retakes) == ([], 0)
    assert (take_of(wrong).quality_flags, wrong.retakes) == (["asr_mismatch"], 1)
    assert RenderJob.objects.get().status == "succeeded"


@pytest.mark.thorough
def test_worker_with_a_plug_in_that_cannot_start_ends_and_says_why(pair: Pair) -> None:
    worker = pair.start_worker(name="deaf", TTS_TRANSCRIBER=f"{PLUGGED}:broken")

    assert worker.popen.wait(180) == 1
    assert "cannot start" in worker.log and "no model in /models" in worker.log
    status = WorkerStatus.objects.get(name="deaf")
    assert status.state == "failed" and "no model in /models" in status.detail


@pytest.mark.parametrize(
    ("expected", "heard", "language", "rate"),
    [
        ("The ox, said he: go!", "the ox said he go", "en", 0.0),
        ("Don\u2019t stop.", "dont stop", "en", 0.0),
        ("In 1999 he had 3 dogs.", "in nineteen ninety nine he had three dogs", "en", 0.0),
        ("He had three dogs.", "He had 3 dogs.", "en-GB", 0.0),
        ("Er hat 21 Hunde.", "er hat einundzwanzig Hunde", "de", 0.0),
        ("STRASSE", "Stra\u00dfe", "de", 0.0),
        ("caf\u00e9", "cafe\u0301", "fr", 0.0),
        ("one two three four", "one two four", "en", 0.25),
        ("one two three four", "one two too three four", "en", 0.25),
        ("one two three four", "one two tree four", "en", 0.25),
        ("one two three four", "", "en", 1.0),
        ("one two", "one two one two one two", "en", 2.0),
        ("天気がいいです。", "天気がいいです", "ja", 0.0),
        ("你好世界", "你好 世界", "zh", 0.0),
        ("你好世界", "你好世", "", 0.25),
        ("\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "th", 0.0),
        ("\uc548\ub155 \uc138\uacc4", "\uc548\ub155 \uc138\uc0c1", "ko", 0.5),
        ("<|speaker:1|>Hello [laugh] there", "hello there", "en", 0.0),
        ("Ox 5.", "ox five", "", 0.5),
        ("Ox 5.", "ox five", "xx", 0.5),
    ],
    ids=range(20),
)
def test_rate(expected: str, heard: str, language: str, rate: float) -> None:
    assert error_rate(expected, heard, language=language) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["", "[laugh]", "\u2026!", "<|speaker:0|> [sigh]"])
def test_where_nothing_is_to_be_said_there_is_no_rate(text: str) -> None:
    assert error_rate(text, "anything") is None


def test_endless_transcript_is_cut_and_not_compared_for_ever() -> None:
    rate = error_rate("one two three", "no " * 1_000_000)

    assert rate is not None
    assert 1 <= rate < 10
