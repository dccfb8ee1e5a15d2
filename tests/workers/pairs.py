"""Run real worker processes on a database and a broker of their own, and look into both."""

from __future__ import annotations

import faulthandler
import json
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from celery.app import app_or_default
from django.conf import settings
from django.core.management import call_command
from django.db import connections
from pytest_django import Settings

from synth.jobs.submit import Order, Sender, submit_job
from synth.models import RenderJob, Segment
from tests.workers.clips import wav_bytes
from ttsweb.configuration.builders import broker_settings, database_settings
from voices.models import CodesCounter, Voice, VoiceVersion
from voices.submit import NewClip, create_voice

PROJECT = Path(__file__).resolve().parents[2]
# Short clocks, so that a fault is over in seconds; everything else is as in production.
CLOCKS = {"TTS_LEASE_SECONDS": "2", "TTS_ENGINE_SLOTS": "4"}
_migrated: bytes | None = None
SENTENCE = "Ox {}."  # short: the tiny model never says the end and runs into the frame cap


@dataclass
class RunningWorker:
    name: str
    popen: subprocess.Popen[bytes]
    log_path: Path

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def send(self, number: int) -> None:
        self.popen.send_signal(number)

    def kill(self) -> None:
        """End it at once, as a lack of memory or of power would."""
        if self.popen.poll() is None:
            self.send(signal.SIGKILL)
        self.popen.wait(180)

    def abort(self) -> None:
        """End it so that Python writes where each of its threads was."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGABRT)
        with suppress(subprocess.TimeoutExpired):
            self.popen.wait(30)

    def stop(self) -> int:
        self.send(signal.SIGTERM)
        return self.popen.wait(180)  # longer than any drain that the tests allow

    def wait_ready(self, seconds: float = 300.0) -> RunningWorker:
        """Return once its engine is warm and it takes work."""
        deadline = time.monotonic() + seconds
        while f"worker {self.name} ready" not in self.log:
            if self.popen.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the worker did not get ready:\n{self.log}")
            time.sleep(0.05)
        return self


@dataclass
class Pair:
    """A database and a broker; `entered` points this process's ORM and messages at them."""

    environment: dict[str, str]
    data_dir: Path
    database: dict[str, Any]
    broker: dict[str, Any]
    workers: list[RunningWorker] = field(default_factory=list)

    @contextmanager
    def entered(self, changed: Settings) -> Iterator[None]:
        """Use this pair's database, storage and broker in this process."""
        from ttsweb.work import make_app

        self.data_dir.mkdir(parents=True, exist_ok=True)
        changed.CELERY = self.broker
        kept, own = connections.databases["default"], connections["default"]
        own.close()
        changed_databases = connections.configure_settings({"default": self.database})
        connections.databases["default"] = changed_databases["default"]
        del connections["default"]
        app = app_or_default()
        make_app().set_default()
        try:
            _make_tables()
            yield
        finally:
            connections["default"].close()
            connections.databases["default"] = kept
            connections["default"] = own
            app.set_default()

    def start_worker(
        self, name: str = "", *, entry: str = "manage.py", role: str = "all", **env: Any
    ) -> RunningWorker:
        """Start `manage.py worker`, or another entry with the same arguments, and do not wait.

        `env` has variables, and settings without one, such as DRAIN_SECONDS.
        """
        name = name or f"w{len(self.workers) + 1}"
        path = self.data_dir / f"{name}-{uuid.uuid4().hex[:6]}.log"
        with path.open("wb") as log:
            popen = subprocess.Popen(
                [sys.executable, entry, "worker", "--name", name, "--role", role],
                cwd=PROJECT,
                env=changed_environment(self.environment, env),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        worker = RunningWorker(name, popen, path)
        self.workers.append(worker)
        return worker

    def start_with_voice(self, name: str = "", **options: Any) -> tuple[RunningWorker, Voice]:
        """Start a worker; return it once it is ready, with a voice that it has encoded."""
        worker, voice = self.start_worker(name, **options).wait_ready(), new_voice()
        wait_encoded(voice)
        return worker, voice

    def kill_workers(self) -> None:
        for worker in self.workers:
            worker.kill()

    def lose_messages(self) -> None:
        """Remove all messages; where Redis has them, it is flushed."""
        if url := self.environment.get("TTS_REDIS_URL"):
            with redis.Redis.from_url(url) as client:
                client.flushall()
            return
        for path in (self.data_dir / "queue" / "messages").iterdir():
            path.unlink(missing_ok=True)


def logs_of(fixtures: Iterable[Any], *, lines: int = 160) -> list[tuple[str, str]]:
    """Return a heading and the end of the log of each process that these fixtures started.

    One that still runs is ended, and says where each of its threads was.
    """
    workers = {
        id(worker): worker
        for fixture in fixtures
        for owner in (fixture, *(getattr(fixture, name, None) for name in ("home", "pair", "web")))
        for kept in ("workers", "processes")
        for worker in getattr(owner, kept, ())
        if isinstance(worker, RunningWorker)
    }
    found = []
    if workers:
        with tempfile.TemporaryFile("w+") as file:
            faulthandler.dump_traceback(file)
            file.seek(0)
            found.append(("Threads of this process", file.read()))
    for worker in workers.values():
        code = worker.popen.poll()
        if code is None:
            worker.abort()
        end = "\n".join(worker.log.splitlines()[-lines:])
        found.append((f"Process {worker.name}, exit code {code}", end))
    return found


def changed_environment(environment: dict[str, str], changes: dict[str, Any]) -> dict[str, str]:
    """Return an environment with other variables, and other values of settings without one."""
    settled = {name: value for name, value in changes.items() if not name.startswith("TTS_")}
    variables = {name: str(value) for name, value in changes.items() if name not in settled}
    variables["DJANGO_SETTINGS_MODULE"] = "tests.process_settings"
    return environment | variables | {"TTS_TEST_CHANGED": json.dumps(settled)}


def _make_tables() -> None:
    """Give an empty database its tables; of SQLite's files each is a copy of the first one."""
    global _migrated
    database = connections["default"]
    if database.vendor != "sqlite":
        if not database.introspection.table_names():
            call_command("migrate", verbosity=0)
        return
    path = Path(database.settings_dict["NAME"])
    if _migrated is None:
        call_command("migrate", verbosity=0)
        database.close()  # the last connection puts the log's pages into the file
        _migrated = path.read_bytes()
    else:
        path.write_bytes(_migrated)


def service_pair(
    environment: dict[str, str],
    data_dir: Path,
    *,
    postgres_url: str | None = None,
    redis_url: str | None = None,
) -> Pair:
    """Return these services; without them SQLite and messages as files, as nothing configured is.

    A worker reads the secrets that this process encrypts.
    """
    urls = {"TTS_DATABASE_URL": postgres_url, "TTS_REDIS_URL": redis_url}
    own = {"TTS_DATA_DIR": str(data_dir), "TTS_SECRET_KEY": settings.SECRET_KEY}
    return Pair(
        environment | {name: url for name, url in urls.items() if url} | CLOCKS | own,
        data_dir,
        database=database_settings(postgres_url, data_dir=data_dir),
        broker=broker_settings(redis_url, data_dir=data_dir),
    )


file_pair = service_pair


def wait_all_slots_busy(worker: RunningWorker, slots: int) -> None:
    """Return once a worker has claimed at least as many segments as its engine has slots.

    The rows say so at once; the worker's own figures are of moments and may miss each of these.
    """
    held = Segment.objects.filter(claimed_by=worker.name, status=Segment.Status.CLAIMED)
    wait_for(lambda: held.count() >= slots, what=f"{slots} segments are claimed")


def new_voice(name: str = "Ada", *clips: tuple[str, float], content: bytes | None = None) -> Voice:
    """Return a voice of clips, each a transcript and so many seconds; without any, of one clip."""
    made = [NewClip(transcript=said, content=wav_bytes(seconds=length)) for said, length in clips]
    one = NewClip(transcript="Said in it.", content=content or wav_bytes(seconds=1.5))
    return create_voice(
        name=name, consent_statement="The speaker agreed.", by="tester", clips=made or [one]
    )


def wait_for(
    condition: Callable[[], Any], *, what: str, seconds: float = 300.0, poll: float = 0.03
) -> Any:
    """Return the condition's value once it is true."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        time.sleep(poll)


def wait_encoded(voice: Voice) -> VoiceVersion:
    """Return the newest version of a voice once it is ready or failed."""
    final = (VoiceVersion.Status.READY, VoiceVersion.Status.FAILED)
    rows = VoiceVersion.objects.filter(voice=voice)
    wait_for(rows.filter(status__in=final).exists, what="the voice is encoded")
    return rows.latest("number")


def text_of(sentences: int, *, first: int = 0) -> str:
    """Return a text of so many sentences, each of them its own segment and unlike the others."""
    return "\n\n".join(SENTENCE.format(first + index) for index in range(sentences))


def submit(voice: Voice | None = None, *, sentences: int = 1, **order: Any) -> RenderJob:
    text = order.pop("text", None) or text_of(sentences, first=order.pop("first", 0))
    owner = order.pop("owner", None)
    return submit_job(Order(text=text, voice=voice, **order), Sender(owner))[0]


def wait_ended(*jobs: RenderJob, seconds: float = 300.0) -> None:
    """Return once every job has ended, with the rows refreshed."""
    rows = RenderJob.objects.filter(pk__in=[job.pk for job in jobs])
    still_open = rows.exclude(status__in=RenderJob.FINAL)
    wait_for(lambda: not still_open.exists(), what="all jobs ended", seconds=seconds)
    for job in jobs:
        job.refresh_from_db()


def assert_whole(*jobs: RenderJob) -> None:
    """Assert that nothing was lost and nothing done twice."""
    for job in jobs:
        segments = list(Segment.objects.filter(job=job).select_related("take"))
        assert job.status == RenderJob.Status.SUCCEEDED, (job.error_code, job.error_message)
        assert [segment.status for segment in segments] == ["done"] * job.segments_total
        assert all(segment.take is not None for segment in segments)
        assert (job.segments_done, job.segments_failed) == (job.segments_total, 0)
        assert [export.status for export in job.exports.all()] == ["done"]


def counter(name: str) -> int:
    row = CodesCounter.objects.filter(pk=name).first()
    return row.value if row else 0
