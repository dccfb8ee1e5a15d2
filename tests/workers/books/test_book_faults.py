"""Books survive kills of all processes: nothing is lost, made twice, or other than undisturbed."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import redis
from django.contrib.auth.models import User
from pytest_django import Settings

from lab.servers import RedisServer
from synth.accounts.access import create_key
from synth.models import BookSource, Segment
from tests.factories import make_user
from tests.workers.books.disturbed_book import (
    CHAPTERS,
    FAULTY,
    PATIENCE_SECONDS,
    STRICT,
    Outcome,
    asked,
    assert_spoken_once,
    deaths,
    start_strict,
    upload_to_speak,
    visible,
    wait_spoken,
)
from tests.workers.books.test_book_jobs import epub, upload, wait_read
from tests.workers.commands import PROJECT, child_pid
from tests.workers.conftest import TINY
from tests.workers.pairs import Pair, file_pair, new_voice, service_pair, wait_for

pytestmark = [pytest.mark.thorough, pytest.mark.django_db(transaction=True)]

MOMENTS = (
    "claimed", "rendering", "rendered", "stored",
    "encoding", "encoded", "writing", "written",
)  # fmt: skip
_calm: list[Outcome] = []  # of the one undisturbed run that all tests are held against


@pytest.fixture
def undisturbed(
    tmp_path: Path, clean_env: dict[str, str], settings: Settings, django_db_blocker: Any
) -> Outcome:
    """What the book is when nothing goes wrong, in a data folder of its own; ask for it first."""
    if not _calm:
        pair = file_pair(clean_env | {"TTS_CHECKPOINT": str(TINY)}, tmp_path / "calm")
        usual = settings.STORAGES
        settings.STORAGES = usual | {
            "default": {
                "BACKEND": "ttsweb.storage.AtomicFileSystemStorage",
                "OPTIONS": {"location": pair.data_dir / "storage"},
            }
        }
        with django_db_blocker.unblock(), pair.entered(settings):
            try:
                _calm.append(calm_run(pair))
            finally:
                pair.kill_workers()
        settings.STORAGES = usual
    return _calm[0]


def calm_run(pair: Pair) -> Outcome:
    """Speak the book with one worker that nobody disturbs."""
    new_voice("Ada")
    start_strict(pair, "all")
    book = upload_to_speak(make_user("owner"))
    job = wait_spoken(book)
    assert job.takes_rendered == job.segments_total == len(asked(pair))
    return assert_spoken_once(pair, book)


@pytest.fixture
def owner(pair: Pair) -> User:
    """A user of the pair's database."""
    return make_user("owner")


@pytest.mark.parametrize("pair", ["files"], indirect=True)
def test_book_is_the_same_at_whatever_moments_its_workers_are_killed(
    undisturbed: Outcome, pair: Pair, owner: User
) -> None:
    moments = pair.data_dir / "die-at"
    moments.mkdir()
    for moment in MOMENTS:
        (moments / moment).touch()
    new_voice("Ada")
    book = upload_to_speak(owner)
    # The same first rows are hit again and again: of three kills in a row the third is an outcome.
    start_strict(pair, "gpu", MAX_ATTEMPTS=9)
    start_strict(pair, "cpu", MAX_ATTEMPTS=9)
    job = wait_spoken(book)

    assert list(moments.iterdir()) == []
    assert deaths(pair) == len(MOMENTS)
    assert assert_spoken_once(pair, book) == undisturbed
    # What a killed worker had stored, and not yet given to its segment, is reused by the next one:
    # how many that are is a matter of speed, and all that is certain is that some were made.
    assert job.takes_rendered > 0
    left = set(visible(pair, "exports")) - {job.exports.get().key}
    assert len(left) == 1  # written, and no row names it: it ages out


class Served(NamedTuple):
    """A running `serve` and its address."""

    process: subprocess.Popen[bytes]
    url: str

    def kill(self, *words: str) -> None:
        """Kill its children whose command lines hold these words; without words, itself."""
        found = [child_pid(self.process.pid, word) for word in words]
        if not words:
            self.process.kill()
        for pid in found:
            os.kill(pid, signal.SIGKILL)


@contextmanager
def serving(pair: Pair, **options: Any) -> Iterator[Served]:
    """Serve a pair's site, with its worker, until the block ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = pair.environment | {name: str(value) for name, value in options.items()}
    command = [sys.executable, "manage.py", "serve", "--port", str(port), "--json"]
    with (
        (pair.data_dir / "serve.log").open("ab") as log,
        subprocess.Popen(
            command, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, stderr=log
        ) as process,
    ):
        try:
            assert process.stdout is not None
            yield Served(process, json.loads(process.stdout.readline())["url"])
        finally:
            process.terminate()
            process.wait(60)


@pytest.mark.parametrize("pair", ["files"], indirect=True)
def test_book_is_the_same_when_web_worker_and_serve_are_killed(
    undisturbed: Outcome, pair: Pair, owner: User
) -> None:
    _, key = create_key(owner, "test")
    client = httpx.Client(headers={"Authorization": f"Bearer {key}"}, timeout=60)
    new_voice("Ada")
    done = Segment.objects.filter(status=Segment.Status.DONE)
    with serving(pair, **STRICT) as served:
        form = {"voice": "Ada", "format": "m4b", "start": "true", "priority": "bulk",
                "max_retakes": "0"}  # fmt: skip
        files = {"file": ("b.epub", epub(*CHAPTERS))}
        answer = client.post(f"{served.url}/api/v1/books", data=form, files=files)
        served.kill("http.listen")
        assert answer.status_code == 202, answer.text
        wait_for(lambda: done.count() >= 2, what="some of it is spoken", seconds=PATIENCE_SECONDS)
        served.kill("http.listen", " worker ")
        served.kill()
        kept = set(done.values_list("take_id", flat=True))
    book = BookSource.objects.get()
    with serving(pair, **STRICT) as served:
        wait_spoken(book)
        content = client.get(f"{served.url}/api/v1/books/{book.pk}/audio").content

    assert hashlib.sha256(content).hexdigest() == undisturbed.file
    assert assert_spoken_once(pair, book) == undisturbed
    assert kept <= set(done.values_list("take_id", flat=True))


def listeners(client: redis.Redis) -> int:
    """Return how many workers wait for messages."""
    return int(client.info("clients")["blocked_clients"])


@pytest.mark.redis
@pytest.mark.postgres
def test_redis_that_comes_back_empty_costs_a_book_nothing(
    undisturbed: Outcome,
    tmp_path: Path,
    clean_env: dict[str, str],
    settings: Settings,
    migrated_postgres_url: str,
) -> None:
    server = RedisServer(tmp_path)
    pair = service_pair(
        clean_env | {"TTS_CHECKPOINT": str(TINY)},
        tmp_path / "data",
        postgres_url=migrated_postgres_url,
        redis_url=server.url,
    )
    with pair.entered(settings):
        try:
            server.start()
            new_voice("Ada")
            start_strict(pair, "gpu")
            start_strict(pair, "cpu")
            owner = make_user("owner")
            book = upload_to_speak(owner)
            done = Segment.objects.filter(status=Segment.Status.DONE)
            wait_for(lambda: done.count() >= 2, what="it is spoken", seconds=PATIENCE_SECONDS)
            server.kill()
            was_open = done.count() < Segment.objects.count()
            meanwhile = upload(owner, epub(("Horses", "A horse.")))
            wait_read(meanwhile)
            server.start()
            with redis.Redis(port=server.port) as client:
                wait_spoken(book)
                wait_for(lambda: listeners(client) == 2, what="both workers hear messages again")
            assert was_open, "the book was spoken before Redis was killed"
            assert (meanwhile.state, meanwhile.attempts) == ("planned", 1)
            assert not deaths(pair)
            assert set(Segment.objects.values_list("attempts", flat=True)) == {1}
            assert len(asked(pair)) == len(undisturbed.takes)
            assert assert_spoken_once(pair, book) == undisturbed
        finally:
            pair.kill_workers()
            server.kill()


@pytest.mark.parametrize("pair", ["files"], indirect=True)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_worker_killed_around_the_storing_of_a_book_reads_it_again_once(
    pair: Pair, owner: User, moment: str
) -> None:
    new_voice("Ada")
    (pair.data_dir / "die-storing").write_text(moment)
    first = pair.start_worker(
        role="cpu", entry=FAULTY, TTS_TEST_FAULT="storing", TTS_LEASE_SECONDS=6
    )
    book = upload(owner, epub(*CHAPTERS))
    wait_for(lambda: first.popen.poll() is not None, what="it has died", seconds=PATIENCE_SECONDS)
    assert BookSource.objects.get(pk=book.pk).state == BookSource.State.IMPORTING

    pair.start_worker(role="cpu", TTS_LEASE_SECONDS=6)
    wait_read(book)

    assert (book.state, book.title, book.attempts) == ("planned", "Cattle", 1)
    assert book.losses == 1
    assert book.figures["included"] == len(CHAPTERS)
    left = set(visible(pair, "books")) - {book.object_key, book.book_key}
    assert len(left) == (1 if moment == "after" else 0)  # no row names it: it ages out
