"""Jobs followed to their files: many at once, lost ones, broken ones, in any order."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.ttsweb.client.faulty_server import Answer, FaultyServer, json_answer, problem
from ttsweb.client import Client, ClientError, Job
from ttsweb.commands.remote_command import Followed, follow, outcome, submit, summary
from ttsweb.commands.terminal import JobBars, Speed


def job_of(number: int, status: str = "running", **fields: Any) -> Job:
    job = {
        "id": f"00000000-0000-0000-0000-{number:012}",
        "status": status,
        "segments_total": 4,
        "segments_done": 2,
        "segments_failed": 0,
        "queue_position": None,
        "eta_seconds": None,
        "audio_seconds": 5.0,
        "error_code": "",
        "error_message": "",
        "started_at": "2026-01-31T12:00:00Z",
        "finished_at": None,
    }
    return cast("Job", job | fields)


class JobServer(ThreadingHTTPServer):
    """Answers for jobs: each ends after as many questions as its number says."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _JobHandler)
        self.asked: dict[int, int] = {}
        self.ends: dict[int, dict[str, Any]] = {}
        self.gone: set[int] = set()

    def state(self, number: int) -> Job | None:
        if number in self.gone:
            return None
        self.asked[number] = self.asked.get(number, 0) + 1
        ended = {"status": "succeeded", **self.ends.get(number, {})}
        return job_of(number, **(ended if self.asked[number] > number % 5 else {}))


class _JobHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: JobServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        words = parts.path.split("/")
        if "ids" in parse_qs(parts.query):
            ids = parse_qs(parts.query)["ids"][0].split(",")
            found = [self.server.state(int(one[-12:])) for one in ids]
            self._send(200, {"next": None, "results": [job for job in found if job]})
        elif words[-1] == "audio":
            self._send(200, {"audio": words[-2]})
        elif words[-1] == "segments":
            failed = {"index": 3, "status": "failed", "error_code": "too_long",
                      "error_message": "Too long."}  # fmt: skip
            self._send(200, {"next": None, "results": [failed]})
        else:
            job = self.server.state(int(words[-1][-12:]))
            self._send(200 if job else 404, job or {"code": "job_not_found", "detail": "None."})

    def _send(self, status: int, found: Any) -> None:
        body = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def jobs() -> Iterator[JobServer]:
    with JobServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def jobs_client(jobs: JobServer) -> Iterator[Client]:
    url = f"http://127.0.0.1:{jobs.server_address[1]}"
    with Client(url, "tts_key", retries=1, sleep=lambda seconds: None) as client:
        yield client


def followed(folder: Path, *numbers: int) -> list[Followed]:
    return [Followed(f"{n}.txt", job_of(n, "queued"), folder / f"{n}.wav") for n in numbers]


def test_all_jobs_get_their_files_in_whatever_order_they_end(
    jobs: JobServer, jobs_client: Client, tmp_path: Path
) -> None:
    items = followed(tmp_path, *range(1, 121))
    with JobBars(io.StringIO(), len(items)) as bars:
        follow(jobs_client, items, bars)
    assert all(item.is_closed and item.is_written and item.error is None for item in items)
    assert len(list(tmp_path.iterdir())) == 120
    assert items[7].job["id"] in items[7].target.read_text()


def test_one_that_fails_or_is_deleted_keeps_no_other_from_its_file(
    jobs: JobServer, jobs_client: Client, tmp_path: Path
) -> None:
    items = followed(tmp_path, 1, 2, 3, 4, 5)
    jobs.gone = {1, 3}
    jobs.ends = {
        2: {"status": "failed", "error_code": "voice_deleted", "error_message": "Deleted."},
        4: {"status": "partial", "segments_failed": 1},
    }
    # A job that is gone is told by name as soon as it is asked for alone.
    with JobBars(io.StringIO(), len(items)) as bars:
        follow(jobs_client, items, bars)

    text = [outcome(item) for item in items]
    assert text[0].startswith("job_deleted: ") and text[2].startswith("job_deleted: ")
    assert text[1] == "voice_deleted: Deleted."
    assert text[3].endswith("4.wav; too_long: segment 3: Too long.")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["4.wav", "5.wav"]
    assert items[3].as_object()["error"] == {"code": "too_long", "message": "segment 3: Too long."}


def test_file_that_cannot_be_written_is_an_error(
    jobs: JobServer, jobs_client: Client, tmp_path: Path
) -> None:
    items = followed(tmp_path / "file", 1)
    (tmp_path / "file").write_text("no folder")
    with JobBars(io.StringIO(), 1) as bars, pytest.raises(OSError):
        follow(jobs_client, items, bars)
    assert not items[0].is_closed


def test_voice_that_was_never_encoded_is_waited_for(client: Client, faulty: FaultyServer) -> None:
    voice = {"id": job_of(1)["id"], "name": "Ada"}
    faulty.script = [
        problem(409, "voice_not_ready"),
        json_answer({"next": None, "results": [voice]}),
        json_answer({**voice, "status": "encoding"}),
        json_answer({**voice, "status": "ready"}),
        json_answer(job_of(2), 202),
    ]
    text: list[str] = []
    jobs: list[Job] = []

    submit(client, "Hello.", "Ada", tell=text.append, keep=jobs.append, format="mp3")

    assert [job["id"] for job in jobs] == [job_of(2)["id"]]
    assert len(text) == 1 and "'Ada' is being encoded" in text[0]
    first, last = faulty.requests[0], faulty.requests[-1]
    assert first.body == last.body
    assert first.headers["idempotency-key"] != last.headers["idempotency-key"]


def test_voices_of_all_speakers_are_waited_for(client: Client, faulty: FaultyServer) -> None:
    ada = {"id": job_of(1)["id"], "name": "Ada", "status": "ready"}
    bob = {"id": job_of(2)["id"], "name": "Bob", "status": "encoding"}
    means_ada, means_bob = (json_answer({"next": None, "results": [one]}) for one in (ada, bob))
    faulty.script = [
        problem(409, "voice_not_ready"),
        means_ada, json_answer(ada), means_bob, json_answer({**bob, "status": "ready"}),
        json_answer(job_of(3), 202),
    ]  # fmt: skip
    text: list[str] = []

    submit(client, "Hello.", {0: "Ada", 1: "Bob"}, tell=text.append, keep=print)

    assert text == ["The voice 'Bob' is being encoded; waiting for it."]
    assert json.loads(faulty.requests[-1].body)["voices"] == {"0": "Ada", "1": "Bob"}


def test_voice_that_stays_unready_is_not_asked_for_again_and_again(
    client: Client, faulty: FaultyServer
) -> None:
    ada = {"id": job_of(1)["id"], "name": "Ada", "status": "ready"}
    faulty.script = [
        problem(409, "voice_not_ready"),
        json_answer({"next": None, "results": [ada]}),
        json_answer(ada),
        problem(409, "voice_not_ready"),
    ]

    with pytest.raises(ClientError, match="sentence"):
        submit(client, "Hello.", "Ada", tell=print, keep=print)

    assert len(faulty.requests) == 4


def test_a_signal_before_the_answer_leaves_no_job_that_the_command_does_not_know(
    client: Client, faulty: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty.script = [json_answer(job_of(1), 202)]
    give = faulty.next_answer

    def give_after_a_signal() -> Answer:
        os.kill(os.getpid(), signal.SIGINT)
        return give()

    monkeypatch.setattr(faulty, "next_answer", give_after_a_signal)
    jobs: list[Job] = []
    # A shell starts what runs in its background with SIGINT ignored, and tests may run there.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    try:
        with pytest.raises(KeyboardInterrupt):
            submit(client, "Hello.", "Ada", tell=print, keep=jobs.append)
    finally:
        signal.signal(signal.SIGINT, before)

    assert [job["id"] for job in jobs] == [job_of(1)["id"]]


def test_other_conflicts_are_not_waited_for(client: Client, faulty: FaultyServer) -> None:
    faulty.script = [problem(409, "voice_failed")]
    with pytest.raises(ClientError, match="sentence"):
        submit(client, "Hello.", "Ada", tell=print, keep=print)
    assert len(faulty.requests) == 1


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


def test_bars_are_for_terminals_alone() -> None:
    written = io.StringIO()
    with JobBars(written, 2) as bars:
        bars.show("one", job_of(1))
        bars.end("one", "done")
    assert written.getvalue() == ""


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_many_jobs_share_a_bounded_number_of_bars() -> None:
    with JobBars(_Terminal(), 50) as bars:
        for number in range(50):
            bars.show(f"[red]{number}.txt", job_of(number))
        shown = len(bars._progress.tasks)
        for number in range(50):
            bars.show(f"{number}.txt", job_of(number, "succeeded"))

    assert shown == 11, "ten jobs, and one over all"
    assert [task.description for task in bars._progress.tasks] == ["all"]
