"""Look at what needs no torch: Python, settings, codecs, database, broker, storage and more."""

from __future__ import annotations

import datetime as dt
import http.client
import json
import os
import platform
import shutil
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from celery import current_app
from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import DatabaseError, InterfaceError, connection
from django.utils import timezone

from synth.formats import FORMATS, LOSSY
from synth.models import WorkerStatus
from ttsweb.commands.base import BaseCommand
from ttsweb.http.listen import ListenError, check_address, open_socket
from ttsweb.leases import database_now
from ttsweb.migration import missing_migrations
from ttsweb.storage import storage_place
from workers.rendering.transcriber import TranscriberError, find_factory

Level = Literal["ok", "warn", "fail"]
Check = Callable[[], "Finding"]


@dataclass(frozen=True)
class Finding:
    """One line of the report; `remedy` says what to do about a warning or a failure.

    `rows` are a table's rows for programs, `table` the same as lines for people; `name` is what was
    looked at, which the table of checks knows.
    """

    level: Level
    text: str
    remedy: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    table: tuple[str, ...] = ()
    name: str = ""

    def line(self) -> str:
        """Return the finding as a line for people, with its table below where it has one."""
        remedy = f"  -> {self.remedy}" if self.remedy else ""
        first = f"{self.level:<4}  {self.name:<10}  {self.text}{remedy}"
        return "\n".join([first, *(f"{'':<18}{row}" for row in self.table)])

    def as_json(self) -> dict[str, Any]:
        """Return what programs read; `rows` only where there are any."""
        found = {name: getattr(self, name) for name in ("level", "name", "text", "remedy")}
        return found | ({"rows": self.rows} if self.rows else {})


ok, warn, fail = partial(Finding, "ok"), partial(Finding, "warn"), partial(Finding, "fail")


def run_checks(checks: Iterable[tuple[str, Check]]) -> Iterator[Finding]:
    """Yield what each check finds; one that breaks is a failure of what it looked at."""
    for name, check in checks:
        try:
            yield replace(check(), name=name)
        except Exception as error:  # whatever is broken here must not hide the other findings  # noqa: BLE001
            first = next((line for line in str(error).splitlines() if line.strip()), "no text")
            yield fail(f"{type(error).__name__}: {first}", name=name)


MAX_CLOCK_SKEW_SECONDS = 5.0
BROKER_SECONDS = 3


def look_at_python() -> Finding:
    version = platform.python_version()
    where = f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors"
    text = f"{version} on {where} ({sys.executable})"
    if (3, 11) <= sys.version_info[:2] <= (3, 14):
        return ok(text)
    return fail(text, "use Python 3.11 to 3.14 (TTS_PYTHON)")


def look_at_settings() -> Finding:
    if unknown := settings.UNKNOWN_VARIABLES:
        return warn("; ".join(unknown), "correct or remove it")
    form = "embedded" if settings.IS_EMBEDDED else "production"
    return ok(f"{form}, data in {settings.DATA_DIR}")


def look_at_codecs() -> Finding:
    import av

    read, written = {"vorbis", "pcm_s16le", "flac", *LOSSY}, {one.codec for one in FORMATS.values()}
    missing = sorted((read | written - {""}) - av.codecs_available)
    if missing:
        return fail(
            f"PyAV {av.__version__} lacks {', '.join(missing)}",
            ".venv/bin/pip install --force-reinstall --only-binary :all: av",
        )
    return ok(f"PyAV {av.__version__} reads and writes all formats that are needed")


def look_at_database() -> Finding:
    described = connection.settings_dict["NAME"]
    if not database_is_made():
        return ok(f"{described} does not exist yet; demo and serve create it")
    try:
        connection.ensure_connection()
        missing = missing_migrations()
        skew = abs((database_now() - timezone.now()).total_seconds())
    except (DatabaseError, InterfaceError) as error:
        reason = str(error).strip().splitlines()[0]
        return fail(f"{connection.vendor}: {reason}", "check TTS_DATABASE_URL")
    text = f"{connection.vendor} {described}"
    if missing:
        return warn(f"{text}: {len(missing)} migrations are not applied", "./tts migrate")
    if skew > MAX_CLOCK_SKEW_SECONDS:
        return warn(f"{text}: its clock differs by {skew:.0f} s", "set the clocks of both machines")
    return ok(f"{text}, migrated")


def database_is_made() -> bool:
    """Return False where opening it would make it: a look must leave things as they are."""
    if connection.vendor != "sqlite" or connection.connection is not None:
        return True
    return Path(str(connection.settings_dict["NAME"])).exists()


def look_at_broker() -> Finding:
    if settings.REDIS_URL is None:
        folder = Path(settings.CELERY["broker_transport_options"]["data_folder_in"])
        waiting = sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0
        return ok(f"files in {folder}, {waiting} messages are waiting")
    broker = current_app.connection_for_write(connect_timeout=BROKER_SECONDS)
    with broker:
        shown = broker.as_uri()  # without the password
        try:
            broker.ensure_connection(max_retries=1, timeout=BROKER_SECONDS)
        except Exception as error:  # each transport has errors of its own  # noqa: BLE001
            text = f"{shown}: {type(error).__name__}"
            return fail(text, "start Redis, or check TTS_REDIS_URL")
    return ok(shown)


def look_at_storage() -> Finding:
    place = storage_place()
    try:
        wrong = _try_storage()
    except OSError as error:
        remedy = "set TTS_DATA_DIR or TTS_STORAGE to a folder that can be written"
        if settings.STORAGE_DIR is None:
            remedy = "check the server, TTS_STORAGE and the credentials; work waits until then"
        return fail(f"{place}: {error.strerror or error}", remedy)
    if wrong:
        return fail(f"{place}: {wrong}", "use another storage; this one would lose what is stored")
    if settings.STORAGE_DIR is None:
        return ok(place)
    free = shutil.disk_usage(settings.STORAGE_DIR).free
    text = f"{place}, {free / 1e9:.1f} GB free"
    if free < settings.MIN_FREE_BYTES:
        return fail(text, "free some disk space; until then workers start no new work")
    return ok(text)


def _try_storage() -> str:
    """Do with an object all that the service does; return what went wrong of it."""
    content, folder = b"written by ./tts doctor", f"doctor-{uuid.uuid4().hex}"
    key = default_storage.save(f"{folder}/object", ContentFile(content))
    others = [default_storage.save(key, ContentFile(b"another's"))]
    try:
        with default_storage.open(key) as file:
            if file.read() != content:
                return "the data that was read differs from the data that was written"
        with default_storage.open_range(key, 8, 10) as file:  # type: ignore[attr-defined]  # of both kinds
            if file.read(2) != content[8:10]:
                return "a part of an object was read wrong"
        if sorted(default_storage.listdir(folder)[1]) != sorted(
            one.rpartition("/")[2] for one in (key, *others)
        ):
            return "the list of its objects is not complete"
    finally:
        for name in (key, *others, *([folder] if settings.STORAGE_DIR else [])):
            default_storage.delete(name)
    return "an object stays after it was deleted" if default_storage.exists(key) else ""


def look_at_transcriber() -> Finding:
    """Say whether the transcriber that the settings name is there; it is not started."""
    name = settings.TRANSCRIBER
    if not name:
        return ok(
            "no transcriber is set (TTS_TRANSCRIBER), so takes are not checked for wrong words, "
            "and no transcripts are proposed"
        )
    try:
        find_factory(name)
    except TranscriberError as error:
        return fail(str(error), "install the transcriber's package, or leave TTS_TRANSCRIBER empty")
    return ok(f"takes are checked by {name}")


def look_at_workers() -> Finding:
    if not database_is_made():
        return ok("none yet; serve, demo and say start one")
    try:
        rows = list(WorkerStatus.objects.exclude(state=WorkerStatus.State.STOPPED))
        since = database_now() - dt.timedelta(seconds=settings.LEASE_SECONDS)
    except (DatabaseError, InterfaceError):
        return ok("unknown, as the database has no tables yet")
    live = [row for row in rows if row.last_seen_at > since]
    text = "; ".join(f"{row.name} {row.role} {row.state} {row.detail}".strip() for row in live)
    if any(row.state == WorkerStatus.State.FAILED for row in live):
        return fail(text, "look at the worker's log")
    if any(row.detail for row in live):
        return warn(text, "look at the worker's log")
    if live:
        return ok(text)
    if settings.IS_EMBEDDED:
        return ok("none is running; serve, demo and say start one")
    return warn("none is running", "./tts worker --role gpu, ./tts worker --role cpu")


def look_at_port() -> Finding:
    where = f"{settings.HOST}:{settings.PORT}"
    try:
        check_address(settings.HOST, settings.ALLOWED_HOSTS)
        open_socket(settings.HOST, settings.PORT, or_next=False).close()
    except ListenError as error:
        if error.code == "port_taken":
            return _who_listens(where)
        return fail(str(error))
    return ok(f"{where} is free")


def _who_listens(where: str) -> Finding:
    """Tell our own site from another program."""
    asked = http.client.HTTPConnection(settings.HOST, settings.PORT, timeout=2)
    try:
        asked.request("GET", "/healthz")
        if asked.getresponse().status == 200:
            return ok(f"{where} is used by a site like this one")
    except (OSError, http.client.HTTPException):
        pass  # no web server, or one that does not answer
    finally:
        asked.close()
    return warn(f"{where} is used by another program", "use --port auto, or set TTS_PORT")


CHECKS: tuple[tuple[str, Check], ...] = (
    ("python", look_at_python),
    ("settings", look_at_settings),
    ("codecs", look_at_codecs),
    ("database", look_at_database),
    ("broker", look_at_broker),
    ("storage", look_at_storage),
    ("asr", look_at_transcriber),
    ("workers", look_at_workers),
    ("port", look_at_port),
)


def run(command: BaseCommand, options: dict[str, Any]) -> None:
    """Look at everything, then exit 1 if anything failed."""
    failed, shown = 0, []
    for finding in look_for_production() if options["production"] else look():
        failed += finding.level == "fail"
        shown.append(finding.as_json())
        if not options["json"]:
            command.stdout.write(finding.line())
    if options["json"]:
        command.stdout.write(json.dumps({"failed": failed, "findings": shown}))
    if failed:
        sys.exit(1)


def look() -> Iterator[Finding]:
    """Yield the findings, those that need torch last."""
    yield from run_checks(CHECKS)
    try:
        engine = import_module("workers.local.doctor_engine")  # loads torch
    except (ImportError, OSError) as error:
        text = f"cannot be imported: {str(error).splitlines()[0]}"
        yield fail(text, "remove .venv and run ./tts doctor", name="torch")
    else:
        yield from run_checks(engine.CHECKS)


def look_for_production() -> Iterator[Finding]:
    """Yield what an installation needs that others reach; nothing here needs torch."""
    production = import_module("workers.local.doctor_production")  # which has findings as these
    kept = ("settings", "database", "broker", "storage", "workers")
    yield from run_checks((name, check) for name, check in CHECKS if name in kept)
    yield from run_checks(production.CHECKS)
