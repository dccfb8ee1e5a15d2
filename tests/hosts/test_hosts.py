"""Web, workers, broker, database and storage on hosts of their own, which share no folder.

A book is the same, byte for byte, as one machine makes it, whichever of them is cut off meanwhile.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from django.contrib.auth.models import User
from django.core.files.storage import default_storage
from django.db import connection
from pytest_django import Settings
from safetensors.numpy import load

from lab.s3_server import S3Server, s3_server
from lab.servers import find_redis
from synth.accounts.access import create_key
from synth.models import Export, RenderJob, Segment, Take, WorkerStatus
from tests.conftest import use_storage
from tests.factories import make_user
from tests.hosts.network import Network, Postgres, network, postgres_on
from tests.workers.books.test_book_jobs import OPTIONS, epub, upload
from tests.workers.clips import wav_bytes
from tests.workers.conftest import TINY
from tests.workers.pairs import PROJECT, Pair, file_pair, new_voice, service_pair, wait_for

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.hosts,
    pytest.mark.django_db(transaction=True),
]

HOSTS = ("operator", "web", "gpu1", "gpu2", "cpu", "redis", "postgres", "s3")
WORKERS = {"gpu1": "gpu", "gpu2": "gpu", "cpu": "cpu"}
TROUBLES = ("none", "worker", "broker", "database")
STRICT = {"TTS_ENGINE_STRICT": "1", "TTS_CHECKPOINT": str(TINY), "TTS_DEVICE": "cpu"}
LEASE = {"TTS_LEASE_SECONDS": "5"}  # what a fault does shows after one, whatever its length
BUCKET = "hosts"
BOOK = epub(*(
    (title, "\n".join(f"Ox {10 * number + line}." for line in range(4)))
    for number, title in enumerate(("Oxen", "Cows"))
))  # fmt: skip
NUM_SEGMENTS = 10  # with the titles


@dataclass
class Site:
    """A running installation; this process is on the host `operator`."""

    network: Network
    postgres: Postgres
    s3: S3Server
    pair: Pair
    logs: Path

    @property
    def api(self) -> str:
        return f"http://{self.network.address('web')}:8000"

    def said(self, name: str) -> str:
        return (self.logs / f"{name}.log").read_text(errors="replace")

    def has_said(self, name: str, words: str, *, after: int = 0) -> bool:
        return words in self.said(name)[after:]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """An installation on eight hosts, whose workers are ready."""
    folder = tmp_path_factory.mktemp("hosts")
    with ExitStack() as stack:
        net = stack.enter_context(network(HOSTS))
        postgres = stack.enter_context(postgres_on(net, "postgres"))
        stack.enter_context(_running_redis(net))
        with net.on("s3"):
            s3 = stack.enter_context(s3_server(host=net.address("s3"), port=9000))
            s3.make_bucket(BUCKET)
        environment = {
            name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ
        }
        environment |= (
            STRICT
            | s3.environment
            | {
                "TTS_ENV_FILE": os.devnull,
                "OMP_NUM_THREADS": "1",
                "TTS_STORAGE": s3.storage_url(BUCKET, "tts"),
                "TTS_ALLOWED_HOSTS": net.address("web"),
                "DJANGO_SETTINGS_MODULE": "ttsweb.settings",
            }
        )
        redis_url = f"redis://{net.address('redis')}:6379/0"
        urls = {"postgres_url": postgres.url, "redis_url": redis_url}
        pair = service_pair(environment, folder / "operator", **urls)
        pair.environment |= LEASE
        for name in ("web", *WORKERS):
            stack.enter_context(_running(net, pair, folder, name))
        running = Site(net, postgres, s3, pair, folder)
        for name in WORKERS:
            wait_for(
                partial(running.has_said, name, f"worker {name} ready"), what=f"{name} is ready"
            )
        yield running


@contextmanager
def _running_redis(net: Network) -> Iterator[None]:
    address = net.address("redis")
    words = ("--bind", address, "--protected-mode", "no", "--save", "", "--dir", "/tmp")
    with (
        net.on("redis"),
        subprocess.Popen([find_redis() or "", *words], stdout=subprocess.DEVNULL) as process,
    ):
        try:
            client = redis.Redis(host=address)
            wait_for(lambda: _pings(client), what="Redis answers")
            yield
        finally:
            process.kill()


def _pings(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.exceptions.ConnectionError:
        return False


@contextmanager
def _running(net: Network, pair: Pair, folder: Path, name: str) -> Iterator[None]:
    """Run the web server or a worker on its host, with a folder of its own."""
    arguments = ["worker", "--name", name, "--role", WORKERS.get(name, "")]
    if name == "web":
        arguments = ["serve", "--host", net.address("web"), "--port", "8000", "--no-worker"]
    own = {"TTS_DATA_DIR": str(folder / f"{name}-data")}
    with net.on(name), (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "manage.py", *arguments],
            cwd=PROJECT,
            env=pair.environment | own,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        if name == "web":  # which makes the tables
            with net.on("operator"):
                wait_for(
                    lambda: _is_up(f"http://{net.address('web')}:8000/healthz"), what="web is up"
                )
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)


def _is_up(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def outcome_of(job: RenderJob) -> dict[str, Any]:
    """Assert that a book is whole and made once; return what must be alike wherever it is made."""
    assert job.status == RenderJob.Status.SUCCEEDED, (job.error_code, job.error_message)
    segments = list(job.segments.select_related("take"))
    assert {segment.status for segment in segments} == {"done"}
    assert (job.segments_done, job.segments_failed) == (job.segments_total, 0)
    export = job.exports.get()
    assert _digest(export.key) == export.sha256
    takes = {}
    for segment in segments:
        assert segment.take is not None
        codes = load(_content(segment.take.codes_key))["codes"].tobytes()
        digest = hashlib.sha256(codes).hexdigest()
        takes[segment.text] = (digest, _digest(segment.take.audio_key))
    assert len(takes) == len(segments) == job.segments_total == NUM_SEGMENTS
    return {"takes": takes, "file": export.sha256, "seconds": round(job.audio_seconds, 6)}


def _content(key: str) -> bytes:
    with default_storage.open(key) as file:
        return bytes(file.read())


def _digest(key: str) -> str:
    return hashlib.sha256(_content(key)).hexdigest()


def ended(of: str) -> RenderJob:
    """Return a book's job once it has ended."""
    rows = RenderJob.objects.filter(book=uuid.UUID(of), status__in=RenderJob.FINAL)
    job: RenderJob = wait_for(rows.first, what="the book has ended")
    return job


_alone: dict[str, Any] = {}


@pytest.fixture
def alone(
    tmp_path: Path, clean_env: dict[str, str], settings: Settings, django_db_blocker: Any
) -> dict[str, Any]:
    """What one machine makes of the book, with files and SQLite."""
    if not _alone:
        pair = file_pair(clean_env | STRICT, tmp_path / "alone")
        backend = "ttsweb.storage.AtomicFileSystemStorage"
        own = {"BACKEND": backend, "OPTIONS": {"location": pair.data_dir / "storage"}}
        settings.STORAGES = settings.STORAGES | {"default": own}
        with django_db_blocker.unblock(), pair.entered(settings):
            try:
                new_voice("Ada")
                pair.start_worker(TTS_LEASE_SECONDS=60)
                book = upload(make_user("owner"), BOOK, start=True, format="m4b")
                _alone.update(outcome_of(ended(str(book.pk))))
            finally:
                pair.kill_workers()
    return _alone


@pytest.fixture
def client(
    site: Site,
    alone: dict[str, Any],
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    django_db_blocker: Any,
) -> Iterator[httpx.Client]:
    """A client of the site's API; this process is on a host of its own and sees the rows."""
    with ExitStack() as stack:
        stack.enter_context(site.network.on("operator"))
        stack.enter_context(django_db_blocker.unblock())
        stack.enter_context(site.pair.entered(settings))
        use_storage(settings, monkeypatch, site.s3, site.pair.environment["TTS_STORAGE"])
        scopes = ["read", "jobs", "voices"]
        user = make_user(f"user-{User.objects.count()}")
        key = create_key(user, "test", scopes=scopes)[1]
        headers = {"Authorization": f"Bearer {key}"}
        yield stack.enter_context(
            httpx.Client(base_url=site.api, headers=headers, timeout=60, trust_env=False)
        )


@pytest.mark.parametrize("trouble", TROUBLES)
def test_book_of_many_hosts_is_that_of_one_machine(
    site: Site, alone: dict[str, Any], client: httpx.Client, trouble: str
) -> None:
    net, book = site.network, ""
    voice = {"name": "Ada", "consent_statement": "The speaker agreed.", "transcript": "Said in it."}
    clip = {"audio": ("a.wav", wav_bytes(seconds=1.5), "audio/wav")}
    client.post("/api/v1/voices", data=voice, files=clip).raise_for_status()
    if trouble == "broker":
        net.cut_off("redis")
    form = {name: str(value) for name, value in OPTIONS.items()} | {"format": "m4b"}
    file = {"file": ("b.epub", BOOK)}
    answer = client.post("/api/v1/books", data=form | {"start": "true"}, files=file)
    assert answer.status_code == 202, answer.text
    book = answer.json()["id"]
    rows = Segment.objects.filter(job__book=book)

    if trouble == "worker":
        held = rows.filter(claimed_by="gpu1", status=Segment.Status.CLAIMED)
        wait_for(held.exists, what="gpu1 renders")
        net.cut_off("gpu1")
        gone = list(held.values_list("claim_token", flat=True))
        wait_for(
            lambda: not rows.filter(claim_token__in=gone, status="claimed").exists(),
            what="its leases are over",
        )
        ended(book)
        net.join("gpu1")
    elif trouble == "database":
        wait_for(rows.filter(status="done").exists, what="it is spoken")
        said = {name: len(site.said(name)) for name in WORKERS}
        site.postgres.stop()
        for name, after in said.items():
            sees = partial(site.has_said, name, "the site does not answer", after=after)
            wait_for(sees, what=f"{name} sees it")
        connection.close()
        site.postgres.start()
    job = ended(book)
    if trouble == "broker":
        net.join("redis")

    assert outcome_of(job) == alone
    attempts = set(rows.values_list("attempts", flat=True))
    assert attempts == {1}, "a fault was counted as an attempt"
    assert client.get(f"/api/v1/books/{book}/audio").content == _content(job.exports.get().key)
    assert_nothing_twice()
    # So that the next test renders all of it again.
    assert client.delete(f"/api/v1/books/{book}").status_code == 204
    wait_for(lambda: not Take.objects.exists(), what="its takes are gone")
    alive = WorkerStatus.objects.exclude(state=WorkerStatus.State.STOPPED)
    wait_for(lambda: set(alive.values_list("name", flat=True)) == set(WORKERS), what="all are back")


def assert_nothing_twice() -> None:
    """Return once the storage holds what rows name, and nothing else."""

    def is_tidy() -> bool:
        takes = {key for row in Take.objects.values_list("audio_key", "codes_key") for key in row}
        files = set(Export.objects.values_list("key", flat=True))
        stored = [set(default_storage.list_keys(one)) for one in ("takes/", "exports/")]  # type: ignore[attr-defined]
        return stored == [takes, files]

    wait_for(is_tidy, what="no object is there that no row names", seconds=120)
