"""A suspicious take is followed by others up to a bound, and the best one is kept.

The tiny checkpoint's random weights never say the end, so that each of its takes is suspicious.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.files.storage import default_storage
from django.db import connection
from pytest_django import Settings

from synth.contract import Sampling
from synth.engine.errors import PromptTooLongError
from synth.jobs.removal import delete_job
from synth.models import RenderedDay, RenderJob, Segment, Take
from synth.transitions.jobs import cancel_job
from synth.transitions.segments import reopen_segments
from synth.transitions.takes import retake_seed
from tests.workers.conftest import TINY, MiniatureProcess
from tests.workers.pairs import Pair, assert_whole, submit, wait_ended, wait_for
from tests.workers.rendering.takes_support import screened_checkpoint
from voices.models import Voice
from workers.process.claiming import take_segments
from workers.rendering.quality import Quality
from workers.site import segments as takes_module

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def screened(tmp_path: Path, settings: Settings) -> None:
    """A checkpoint whose card leaves the screen on."""
    settings.CHECKPOINT = screened_checkpoint(tmp_path / "screened")


def render(process: MiniatureProcess) -> Segment:
    """Render until no segment waits; return the first."""
    for _ in range(20):
        take_segments(process)
        process.run_all()
        if not Segment.objects.filter(status=Segment.Status.QUEUED).exists():
            return Segment.objects.order_by("pk")[0]
    raise AssertionError("a segment is taken again and again")


def left() -> tuple[int, int]:
    """Return how many takes there are, and how many files of them."""
    paths = Path(default_storage.path("takes")).rglob("*")
    return Take.objects.count(), sum(path.is_file() for path in paths)


def judged(monkeypatch: pytest.MonkeyPatch, judge: Callable[[Sampling], Quality]) -> None:
    """Have each take judged by the values that it was sampled with."""
    monkeypatch.setattr(takes_module, "screen", lambda spec, rendered: judge(spec.sampling))


def test_suspicious_take_is_followed_by_some(process: MiniatureProcess, ready: Voice) -> None:
    job = submit(ready, text="Ox.")
    first_seed = Segment.objects.get().seed
    segment = render(process)
    seeds = [one["seed"] for one in segment.candidates]
    assert (segment.status, segment.retakes, segment.attempts) == ("done", 2, 1)
    assert seeds == [first_seed, retake_seed(first_seed, 1), retake_seed(first_seed, 2)]
    assert all("frame_limit" in one["flags"] for one in segment.candidates)
    assert segment.seed == first_seed  # none is better
    assert segment.candidate_takes.count() == Take.objects.count() == 3
    job.refresh_from_db()
    assert (job.takes_rendered, job.takes_reused, job.segments_done) == (3, 0, 1)
    day, seconds = RenderedDay.objects.get(), Take.objects.values_list("audio_seconds", flat=True)
    assert day.segments == 1
    assert day.audio_seconds == pytest.approx(sum(seconds))


@pytest.mark.parametrize(
    ("scores", "kept", "takes"),
    [((0.2, 0.5, 0.3), 1, 3), ((0.2, 0.1, 0.3), 2, 3), ((0.5, 0.1, 0.3), 0, 3), ((0.5, 1), 1, 2)],
)
def test_best_take_is_kept_and_a_good_one_is_the_last(
    process: MiniatureProcess,
    ready: Voice,
    monkeypatch: pytest.MonkeyPatch,
    scores: tuple[float, ...],
    kept: int,
    takes: int,
) -> None:
    submit(ready, text="Ox.")
    first_seed = Segment.objects.get().seed
    seeds = [first_seed, retake_seed(first_seed, 1), retake_seed(first_seed, 2)]

    def judge(sampling: Sampling) -> Quality:
        score = scores[seeds.index(sampling.seed)]
        return Quality(score, ["noise"] if score < 1 else [], {})

    judged(monkeypatch, judge)
    segment = render(process)
    assert [one["score"] for one in segment.candidates] == list(scores)
    assert (segment.seed, segment.retakes) == (seeds[kept], takes - 1)
    assert str(segment.take_id) == segment.candidates[kept]["take"]


@pytest.mark.parametrize(
    ("kind", "asked", "short_takes", "takes"),
    [("book", None, 5, 6), ("book", None, 99, 8), ("book", 1, 99, 2), ("speech", None, 99, 3)],
)
def test_short_take_of_a_book_is_followed_by_more_since_it_keeps_the_book_from_succeeding(
    process: MiniatureProcess,
    ready: Voice,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    asked: int | None,
    short_takes: int,
    takes: int,
) -> None:
    monkeypatch.setattr("synth.transitions.takes.BOOK_SHORT_RETAKES", 7)
    submit(ready, text="Ox.")
    RenderJob.objects.update(kind=kind, max_retakes=asked)
    asked_for: list[Sampling] = []

    def judge(sampling: Sampling) -> Quality:
        asked_for.append(sampling)
        short = len(asked_for) <= short_takes
        return Quality(0.9, ["too_short"], {}) if short else Quality(0.1, ["noise"], {})

    judged(monkeypatch, judge)
    segment = render(process)
    assert (segment.status, segment.retakes, len(segment.candidates)) == ("done", takes - 1, takes)
    whole = takes > short_takes  # then the poor take is kept, since it has all its words
    assert segment.seed == asked_for[-1 if whole else 0].seed
    # The first ones differ by their seeds alone; a model that is certain needs more freedom.
    top_p = [sampling.top_p for sampling in asked_for]
    assert len(set(top_p[:3])) == 1 and top_p == sorted(top_p)
    assert takes <= 3 or top_p[3] > top_p[2]


def test_without_a_screen_nothing_is_judged_or_taken_again(
    process: MiniatureProcess, ready: Voice, settings: Settings
) -> None:
    settings.CHECKPOINT = TINY
    submit(ready, text="Ox.")
    segment, take = render(process), Take.objects.get()
    assert (segment.retakes, segment.candidates) == (0, [])
    assert (take.quality_score, take.quality_flags) == (None, [])


@pytest.mark.parametrize(("default", "asked", "takes"), [(0, None, 1), (2, 0, 1), (0, 1, 2)])
def test_job_may_ask_for_another_number_of_retakes_than_the_service_has(
    process: MiniatureProcess,
    ready: Voice,
    monkeypatch: pytest.MonkeyPatch,
    default: int,
    asked: int | None,
    takes: int,
) -> None:
    monkeypatch.setattr("synth.transitions.takes.QUALITY_RETAKES", default)
    submit(ready, text="Ox.")
    RenderJob.objects.update(max_retakes=asked)
    segment = render(process)
    found = (segment.retakes, len(segment.candidates), Take.objects.count())
    assert found == (takes - 1, takes, takes)


def test_the_same_text_again_reuses_all_takes_and_ends_with_the_same(
    process: MiniatureProcess, ready: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(ready, text="Ox.")
    render(process)
    again = submit(ready, text="Ox.")
    monkeypatch.setattr(process.host.engine, "submit", None)
    render(process)
    first, second = Segment.objects.order_by("pk")
    again.refresh_from_db()
    assert (second.take, second.seed, second.retakes) == (first.take, first.seed, 2)
    assert second.candidates == first.candidates
    assert (again.takes_rendered, again.takes_reused) == (0, 3)
    day = RenderedDay.objects.get()
    assert (day.segments, day.reused) == (2, 1)


def test_the_same_job_after_deletion_has_equal_takes(
    process: MiniatureProcess, ready: Voice
) -> None:
    finals = []
    for _ in range(2):
        job = submit(ready, text="Ox one.\n\nOx two.\n\nOx three.", seed=5)
        render(process)
        rows = job.segments.order_by("pk")
        finals.append([(row.seed, row.take.content_key) for row in rows if row.take])
        delete_job(job)
        assert Take.objects.count() == 0
    assert finals[0] == finals[1]
    assert len(finals[0]) == 3


def test_another_worker_goes_on_with_the_series_where_the_first_one_left(
    process: MiniatureProcess, ready: Voice, make_process: Callable[..., MiniatureProcess]
) -> None:
    submit(ready, text="Ox.")
    take_segments(process)
    process.run_all()  # its first take alone
    assert (Segment.objects.get().status, Segment.objects.get().retakes) == ("queued", 1)
    segment = render(make_process(name="other"))
    assert (segment.status, segment.retakes, segment.claimed_by) == ("done", 2, "other")
    assert len({one["take"] for one in segment.candidates}) == 3


@pytest.mark.parametrize("status", ["queued", "cancelled"])
def test_take_of_a_lost_claim_or_a_cancelled_job_is_no_candidate(
    process: MiniatureProcess, ready: Voice, status: str
) -> None:
    job = submit(ready, text="Ox.")
    take_segments(process)
    process.run_next()
    if status == "cancelled":
        cancel_job(job.pk)
    else:
        Segment.objects.update(status="queued", claim_token=None, claimed_by="", lease_until=None)
    process.run_all()
    segment = Segment.objects.select_related("job").get()
    assert (segment.status, segment.job.status) == (status, status.replace("queued", "running"))
    assert (segment.retakes, segment.candidates) == (0, [])


def test_retake_that_cannot_be_rendered_leaves_the_best_take_so_far(
    process: MiniatureProcess, ready: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(ready, text="Ox.")
    take_segments(process)
    process.run_all()

    def fail(*arguments: object, **options: object) -> None:
        raise PromptTooLongError(positions=9, limit=5)

    monkeypatch.setattr(takes_module, "store_take", fail)
    segment = render(process)
    assert (segment.status, segment.error_code) == ("done", "")
    assert segment.take == Take.objects.get()


def test_candidates_go_with_the_last_of_their_jobs(process: MiniatureProcess, ready: Voice) -> None:
    job, other = submit(ready, text="Ox."), submit(ready, text="Ox.")
    third = submit(ready, text="Cow.")
    render(process)
    assert left() == (6, 12)
    for one, takes in ((job, 6), (third, 3), (other, 0)):
        delete_job(one)
        assert left() == (takes, 2 * takes)


def test_lost_take_is_rendered_and_chosen_again(process: MiniatureProcess, ready: Voice) -> None:
    submit(ready, text="Ox.")
    kept = render(process).take
    assert kept is not None
    default_storage.delete(kept.audio_key)
    reopen_segments([Segment.objects.get().pk])
    segment = render(process)
    assert (segment.take, Take.objects.count()) == (kept, 3)
    assert segment.take is not None and default_storage.exists(segment.take.audio_key)


@pytest.mark.thorough
def test_workers_killed_between_takes_lose_and_double_nothing(pair: Pair, tmp_path: Path) -> None:
    checkpoint = tmp_path / "screened"
    first, voice = pair.start_with_voice("w1", TTS_CHECKPOINT=checkpoint)
    job = submit(voice, sentences=4)
    retaken = Segment.objects.filter(retakes__gt=0, status=Segment.Status.CLAIMED)
    wait_for(retaken.exists, what="a segment is taken again", poll=0.005)

    first.kill()
    pair.start_worker("w2", TTS_CHECKPOINT=checkpoint)
    wait_ended(job)

    assert_whole(job)
    for segment in job.segments.all():
        assert segment.retakes == 2
        assert len({one["take"] for one in segment.candidates}) == 3
        scores = {one["take"]: one["score"] for one in segment.candidates}
        assert scores[str(segment.take_id)] == max(scores.values())
    assert Take.objects.count() == 12
    connection.close()
