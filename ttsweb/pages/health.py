"""Tell a supervisor whether this process lives, and a person what is not ready and why."""

from __future__ import annotations

import datetime as dt
import os
import uuid
from collections.abc import Callable
from pathlib import Path

from celery import current_app
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import Error as DatabaseError
from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from kombu.exceptions import OperationalError

from synth.models import WorkerStatus
from ttsweb import leases
from ttsweb.migration import OldDatabaseError, missing_migrations

HEARTBEAT_SECONDS = 60


class NotReadyError(Exception):
    """A part is not ready; the text says what a person can do. It holds no secret."""


@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Answer that the process lives; nothing else is looked at."""
    return JsonResponse({"status": "ok"})


@never_cache
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Answer 200 when a job sent now would be rendered, else 503; each part with its reason.

    `?parts=database,migrations` asks for these alone: a site whose workers come with the work is
    to be sent requests while there is none.
    """
    asked = request.GET.get("parts", ",".join(_CHECKS)).split(",")
    if unknown := [name for name in asked if name not in _CHECKS]:
        text = f"There is no part {unknown[0]!r}; the parts are {', '.join(_CHECKS)}."
        return JsonResponse({"status": "unknown_part", "detail": text}, status=400)
    parts: dict[str, dict[str, object]] = {}
    for name, check in _CHECKS.items():
        if name not in asked:
            continue
        try:
            parts[name] = {"ok": True, "detail": check()}
        except NotReadyError as error:
            parts[name] = {"ok": False, "detail": str(error)}
        except DatabaseError as error:  # whose text may hold an address
            text = f"The database does not answer ({type(error).__name__})."
            parts[name] = {"ok": False, "detail": text}
        except OSError as error:
            text = f"{error.strerror or type(error).__name__}."
            parts[name] = {"ok": False, "detail": text}
    is_ready = all(part["ok"] for part in parts.values())
    body = {"status": "ready" if is_ready else "not_ready", "parts": parts}
    return JsonResponse(body, status=200 if is_ready else 503)


def _check_database() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return str(connection.vendor)


def _check_migrations() -> str:
    try:
        missing = missing_migrations()
    except OldDatabaseError as error:
        raise NotReadyError(str(error)) from error
    if missing:
        raise NotReadyError(f"{len(missing)} migrations are not applied; run `./tts migrate`.")
    return "all applied"


def _check_storage() -> str:
    name = default_storage.save(f"health/{uuid.uuid4().hex}", ContentFile(b"ready?"))
    default_storage.delete(name)
    return "writable"


def _check_broker() -> str:
    if current_app.conf.broker_url.startswith("filesystem://"):
        folder = Path(current_app.conf.broker_transport_options["data_folder_out"])
        if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
            raise NotReadyError(
                "The folder for messages between processes is missing or cannot be written; "
                "check TTS_DATA_DIR."
            )
        return "files"
    try:
        with current_app.connection_for_write() as broker:
            broker.ensure_connection(max_retries=1, interval_start=0, interval_step=0)
    except OperationalError as error:
        raise NotReadyError("The broker does not answer; check TTS_REDIS_URL.") from error
    return "reachable"


def _check_worker() -> str:
    """Look for a worker with an engine that is ready and was seen within the last minute."""
    since = leases.database_now() - dt.timedelta(seconds=HEARTBEAT_SECONDS)
    alive = WorkerStatus.objects.filter(last_seen_at__gte=since)
    engines = alive.filter(state__in=WorkerStatus.SERVING).exclude(model_fingerprint="")
    names = list(engines.values_list("name", flat=True))
    if names:
        return ", ".join(names)
    states = ", ".join(f"{worker.name} is {worker.state}" for worker in alive)
    raise NotReadyError(
        f"No worker with an engine is ready: {states or 'none is running, start `./tts worker`'}."
    )


_CHECKS: dict[str, Callable[[], str]] = {
    "database": _check_database,
    "migrations": _check_migrations,
    "storage": _check_storage,
    "broker": _check_broker,
    "worker": _check_worker,
}
