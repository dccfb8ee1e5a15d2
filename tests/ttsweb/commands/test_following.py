"""Jobs followed to their files: many at once, lost ones, broken ones, in any order."""

from __future__ import annotations

import io
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.ttsweb.client.faulty_server import (
    Answer,
    FaultyClient,
    FaultyServer,
    Request,
    json_answer,
    problem,
    serving,
)
from tests.ttsweb.commands.test_remote_command import Terminal
from ttsweb.client import ClientError, Job
from ttsweb.commands.remote_command import Followed, follow, outcome, submit, summary
from ttsweb.commands.terminal import JobBars, Speed, left_of


def job_of(number: int, status: str = "running", **fields: Any) -> Job:
    job = {
        "id": f"00000000-0000-0000-0000-{number:012}", "status": status,
        "segments_total": 4, "segments_done": 2, "segments_failed": 0, "audio_seconds": 5.0,
        "queue_position": None, "eta_seconds": None, "error_code": "", "error_message": "",
        "started_at": "2026-01-31T12:00:00Z", "finished_at": None,
    }  # fmt: skip
    return cast("Job", job | fields)


class JobServer(FaultyServer):
    """Answers for jobs: each ends after as many questions as its number says."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[int] = Counter()
        self.ends: dict[int, dict[str, Any]] = {}
        self.gone: set[int] = set()

    def state(self, job_id: str) -> Job | None:
        number = int(job_id[-12:])
        if number in self.gone:
            return None
        self.asked[number] += 1
        ended = {"status": "succeeded", **self.ends.get(number, {})}
        return job_of(number, **(ended if self.asked[number] > number % 5 else {}))

    def next_answer(self, request: Request) -> Answer:
        parts = urlsplit(request.path)
        words = parts.path.split("/")
        if "ids" in parse_qs(parts.query):
            found = map(self.state, parse_qs(parts.query)["ids"][0].split(","))
            return json_answer({"next": None, "results": [job for job in found if job]})
        if words[-1] == "audio":
            return json_answer({"audio": words[-2]})
        if words[-1] == "segments":
            failed = {"index": 3, "status": "failed", "error_code": "too_long"}
            rows = [failed | {"error_message": "Too long."}]
            return json_answer({"next": None, "results": rows})
        job = self.state(words[-1])
        return json_answer(job) if job else problem(404, "job_not_found")


@pytest.fixture
def jobs() -> Iterator[FaultyClient]:
    """A client of such a server."""
    with serving(JobServer) as client:
        yield client


def followed(folder: Path, *numbers: int) -> list[Followed]:
    return [Followed(f"{n}.txt", job_of(n, "queued"), folder / f"{n}.wav") for n in numbers]


def test_all_jobs_get_their_files_in_the_order_they_end(jobs: FaultyClient, tmp_path: Path) -> None:
    items = followed(tmp_path, *range(1, 121))
    with JobBars(io.StringIO(), len(items)) as bars:
        follow(jobs, items, bars)
    assert all(item.is_closed and item.is_written and item.error is None for item in items)
    assert len(list(tmp_path.iterdir())) == 120
    assert items[7].job["id"] in items[7].target.read_text()


def test_one_that_fails_or_is_deleted_stops_no_other(jobs: FaultyClient, tmp_path: Path) -> None:
    items = followed(tmp_path, 1, 2, 3, 4, 5)
    server = cast("JobServer", jobs.server)
    server.gone = {1, 3}
    server.ends = {
        2: {"status": "failed", "error_code": "voice_deleted", "error_message": "Deleted."},
        4: {"status": "partial", "segments_failed": 1},
    }
    # A job that is gone is told by name as soon as it is asked for alone.
    with JobBars(io.StringIO(), len(items)) as bars:
        follow(jobs, items, bars)
    text = [outcome(item) for item in items]
    assert text[0].startswith("job_deleted: ") and text[2].startswith("job_deleted: ")
    assert text[1] == "voice_deleted: Deleted."
    assert text[3].endswith("4.wav; too_long: segment 3: Too long.")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["4.wav", "5.wav"]
    assert items[3].as_object()["error"] == {"code": "too_long", "message": "segment 3: Too long."}


def test_file_that_cannot_be_written_is_an_error(jobs: FaultyClient, tmp_path: Path) -> None:
    items = followed(tmp_path / "file", 1)
    (tmp_path / "file").write_text("no folder")
    with JobBars(io.StringIO(), 1) as bars, pytest.raises(OSError):
        follow(jobs, items, bars)
    assert not items[0].is_closed


ADA = {"id": job_of(1)["id"], "name": "Ada", "status": "ready"}
BOB = {"id": job_of(2)["id"], "name": "Bob", "status": "encoding"}
NOT_READY = problem(409, "voice_not_ready")


def means(voice: dict[str, str]) -> Answer:
    return json_answer({"next": None, "results": [voice]})


def test_voices_that_were_never_encoded_are_waited_for(client: FaultyClient) -> None:
    bob = json_answer(BOB | {"status": "ready"})
    client.answers(
        NOT_READY, means(ADA), json_answer(ADA), means(BOB), json_answer(BOB), bob,
        json_answer(job_of(3), 202),
    )  # fmt: skip
    text: list[str] = []
    jobs: list[Job] = []
    voices = {0: "Ada", 1: "Bob"}
    submit(client, "Hello.", voices, tell=text.append, keep=jobs.append, format="mp3")
    assert text == ["The voice 'Bob' is being encoded; waiting for it."]
    assert jobs == [job_of(3)]
    first, last = client.requests[0], client.requests[-1]
    assert first.body == last.body
    assert first.headers["idempotency-key"] != last.headers["idempotency-key"]
    assert client.sent["voices"] == {"0": "Ada", "1": "Bob"}


@pytest.mark.parametrize(
    "script",
    [
        [NOT_READY, means(ADA), json_answer(ADA), NOT_READY],  # it stays so
        [problem(409, "voice_failed")],
    ],
)
def test_other_conflicts_are_not_waited_for_again(
    client: FaultyClient, script: list[Answer]
) -> None:
    client.answers(*script)
    with pytest.raises(ClientError, match="sentence"):
        submit(client, "Hello.", "Ada", tell=print, keep=print)
    assert len(client.requests) == len(script)


def test_a_signal_before_the_answer_leaves_no_job_that_the_command_does_not_know(
    client: FaultyClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_after_a_signal(request: Request) -> Answer:
        os.kill(os.getpid(), signal.SIGINT)
        return json_answer(job_of(1), 202)

    monkeypatch.setattr(client.server, "next_answer", give_after_a_signal)
    jobs: list[Job] = []
    # A shell starts what runs in its background with SIGINT ignored, and tests may run there.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            submit(client, "Hello.", "Ada", tell=print, keep=jobs.append)
    finally:
        signal.signal(signal.SIGINT, before)
    assert jobs == [job_of(1)]


def test_summary_tells_the_speed_of_the_whole() -> None:
    ended = job_of(1, "succeeded", finished_at="2026-01-31T12:00:02.500000Z", segments_done=4)
    assert summary(ended) == "4/4 segments, 2.0x real time"
    assert summary(job_of(1)) == "2/4 segments"


def test_speed_is_counted_from_where_the_watching_began() -> None:
    speed = Speed()
    assert speed.text(job_of(1, "queued", queue_position=3)) == "queued, number 3"
    assert speed.text(job_of(1, audio_seconds=100.0)) == "rendering"
    assert speed.text(job_of(1, audio_seconds=100.0)) == "rendering"
    assert speed.text(job_of(1, audio_seconds=100.5)).endswith("x real time")


def test_what_is_left_of_a_job_is_told_in_words() -> None:
    assert left_of(job_of(1)) == "estimating the time left"
    assert left_of(job_of(1, eta_seconds=90)) == "about 0:01:30 left"
    assert left_of(job_of(1, segments_done=3, segments_failed=1)) == "making the file"


def test_bars_are_for_terminals_alone() -> None:
    written = io.StringIO()
    with JobBars(written, 2) as bars:
        bars.show("one", job_of(1))
        bars.end("one", "done")
    assert written.getvalue() == ""


def test_time_left_is_shown_of_jobs_that_run() -> None:
    with JobBars(Terminal(), 2) as bars:
        bars.show("one", job_of(1, eta_seconds=90))
        bars.show("two", job_of(2, "queued"))
        shown = [task.fields["left"] for task in bars._progress.tasks]
    assert shown == ["", "about 0:01:30 left", ""], "all of them have none, nor has one that waits"


def test_many_jobs_share_a_bounded_number_of_bars() -> None:
    with JobBars(Terminal(), 50) as bars:
        for number in range(50):
            bars.show(f"[red]{number}.txt", job_of(number))
        shown = len(bars._progress.tasks)
        for number in range(50):
            bars.show(f"{number}.txt", job_of(number, "succeeded"))
    assert shown == 11, "ten jobs, and one over all"
    assert [task.description for task in bars._progress.tasks] == ["all"]
