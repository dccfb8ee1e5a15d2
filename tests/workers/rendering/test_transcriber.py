"""Takes are heard by a transcriber that is plugged in; what goes wrong in it costs no take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pytest_django import Settings

from synth.models import RenderJob, Segment, WorkerStatus
from tests.workers.conftest import MiniatureProcess
from tests.workers.pairs import Pair, new_voice, submit, wait_encoded, wait_ended
from tests.workers.rendering.plugged import Parrot, Sleeper
from ttsweb.configuration.builders import transcriber_name
from ttsweb.configuration.env import SettingError
from voices.models import Voice
from workers.local.doctor import look_at_transcriber
from workers.process.claiming import take_segments
from workers.rendering.transcriber import MOST_HEARD_CHARS, TranscriberError, make_transcriber

pytestmark = pytest.mark.django_db(transaction=True)
PLUGGED = "tests.workers.rendering.plugged"


def plug(process: MiniatureProcess, transcriber: Parrot) -> Parrot:
    """Let the process hear by this one."""
    process.speech._transcriber = transcriber
    return transcriber


def render(process: MiniatureProcess) -> None:
    """Render until no segment waits."""
    for _ in range(20):
        take_segments(process)
        process.run_all()
        if not Segment.objects.filter(status=Segment.Status.QUEUED).exists():
            return
    raise AssertionError("a segment is taken again and again")


def test_what_is_heard_is_kept_with_the_take_and_the_wrong_one_is_flagged(
    process: MiniatureProcess, ready: Voice, settings: Settings
) -> None:
    settings.TRANSCRIBER = f"{PLUGGED}:parrot"
    process.speech.start()
    submit(ready, text="Ox one.\n\nA cow went by.", max_retakes=0, language="en")

    render(process)

    right, wrong = Segment.objects.select_related("take").order_by("pk")
    assert right.take is not None and wrong.take is not None
    assert (right.take.measures["asr_error"], right.take.quality_flags) == (0.0, [])
    assert right.take.measures["asr_text"] == "ox one"
    assert right.candidates == []
    assert (wrong.take.measures["asr_error"], wrong.take.quality_flags) == (1.0, ["asr_mismatch"])
    assert wrong.take.quality_score == pytest.approx(0.8 * 0.35)
    assert {"name": "asr_mismatch", "value": 1.0, "limit": 0.35} in wrong.take.measures["screen"]
    assert wrong.candidates[0]["heard"] == "ox one"
    assert process.status.detail == ""


def test_mismatch_is_followed_by_retakes_and_the_best_heard_is_kept(
    process: MiniatureProcess, ready: Voice
) -> None:
    said: Iterator[str] = iter(["a cat sat there", "a cow sat there", "the dog ran off"])
    parrot = plug(process, Parrot(lambda: next(said)))
    submit(ready, text="A cow went by.", max_retakes=2, language="de")

    render(process)

    segment = Segment.objects.select_related("take").get()
    assert [one["heard"] for one in segment.candidates] == [
        "a cat sat there",
        "a cow sat there",
        "the dog ran off",
    ]
    assert segment.take is not None
    assert segment.take.measures["asr_error"] == 0.5  # the second one is the best
    assert segment.retakes == 2
    samples, rate, language = parrot.asked[0]
    assert samples > 0 and rate == process.host.engine.sample_rate and language == "de"


def test_audio_that_a_plug_in_spoils_is_stored_unspoilt(
    process: MiniatureProcess, ready: Voice
) -> None:
    submit(ready, text="Ox one.")
    render(process)
    without = Segment.objects.get().take
    assert without is not None
    plug(process, Parrot())
    submit(ready, text="Ox one.", seed=1)
    submit(ready, text="Ox two.")

    render(process)

    peaks = [
        one.take.measures["peak_dbfs"] for one in Segment.objects.select_related("take") if one.take
    ]
    assert len(peaks) == 3 and min(peaks) > -60


def fails_with(error: BaseException) -> Callable[[], str]:
    def answer() -> str:
        raise error

    return answer


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (fails_with(RuntimeError("no memory")), "RuntimeError: no memory"),
        (fails_with(SystemExit(3)), "SystemExit"),
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

    segment = Segment.objects.select_related("take").get()
    assert (segment.status, segment.retakes) == ("done", 0)
    assert segment.take is not None and "asr_error" not in segment.take.measures
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

    take = Segment.objects.select_related("take").get().take
    assert take is not None
    stored = take.measures["asr_text"]
    assert "\0" not in stored and len(stored) <= MOST_HEARD_CHARS
    stored.encode()


def test_text_without_words_is_not_judged(process: MiniatureProcess, ready: Voice) -> None:
    plug(process, Parrot())
    job = submit(ready, text="Ox one.", max_retakes=0)
    Segment.objects.filter(job=job).update(spoken_text="[laugh]")

    render(process)

    take = Segment.objects.select_related("take").get().take
    assert take is not None
    assert "asr_error" not in take.measures and take.quality_flags == []


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


def test_worker_process_hears_by_its_setting(pair: Pair) -> None:
    pair.start_worker(TTS_TRANSCRIBER=f"{PLUGGED}:parrot").wait_ready()
    voice = new_voice()
    wait_encoded(voice)
    job = submit(voice, text="Ox one.\n\nA cow went by.", max_retakes=1)
    wait_ended(job)

    right, wrong = job.segments.select_related("take").order_by("pk")
    assert right.take is not None and wrong.take is not None
    assert (right.take.quality_flags, right.retakes) == ([], 0)
    assert (wrong.take.quality_flags, wrong.retakes) == (["asr_mismatch"], 1)
    assert RenderJob.objects.get().status == "succeeded"


@pytest.mark.thorough
def test_worker_with_a_plug_in_that_cannot_start_ends_and_says_why(pair: Pair) -> None:
    worker = pair.start_worker(name="deaf", TTS_TRANSCRIBER=f"{PLUGGED}:broken")

    assert worker.popen.wait(180) == 1
    assert "cannot start" in worker.log and "no model in /models" in worker.log
    status = WorkerStatus.objects.get(name="deaf")
    assert status.state == "failed" and "no model in /models" in status.detail
