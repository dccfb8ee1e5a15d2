"""Measure what it costs a web process to take a large batch, and to cancel it.

    TTS_DATA_DIR=$(mktemp -d) python -m lab.bench.service.batch_cost --items 10000

With TTS_DATABASE_URL and TTS_SECRET_KEY on PostgreSQL, in an empty database. Nothing is rendered.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

JSON, LINES = "application/json", "application/x-ndjson"
TEXT = (
    "This is the sentence number {} of a list that is rather long. "
    "And here is another one, {}, which follows it."
)


def main() -> None:
    """Measure and print one line of JSON for each request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--lines", action="store_true", help="send JSONL in place of JSON")
    arguments = parser.parse_args()
    client = _log_in()
    texts = [{"text": TEXT.format(number, number + 7)} for number in range(arguments.items)]
    defaults = {"voice": "Ada"}
    if arguments.lines:
        body, kind = "\n".join(map(json.dumps, texts)), LINES
        query = {"defaults": json.dumps(defaults)}
    else:
        body, kind, query = json.dumps({"items": texts, "defaults": defaults}), JSON, {}
    url = "/api/v1/batches"
    made = _measure("take", lambda: client.post(url, body, content_type=kind, query_params=query))
    _measure("cancel", lambda: client.post(f"{url}/{made['id']}/cancel"))


def _log_in() -> Any:
    """Return a client that is logged in to a service of its own with the voice Ada."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ttsweb.settings")
    import django

    django.setup()
    from django.conf import settings
    from rest_framework.test import APIClient

    from tests.factories import make_user, make_voice
    from ttsweb.migration import migrate_once

    settings.DATA_DIR.mkdir(parents=True, exist_ok=True)
    settings.ALLOWED_HOSTS = ["testserver"]
    migrate_once(settings.DATA_DIR)
    client = APIClient()
    client.force_authenticate(make_user("measures", is_superuser=True))
    make_voice("Ada")
    client.get("/api/v1/batches")
    return client


def _measure(name: str, work: Callable[[], Any]) -> dict[str, Any]:
    """Do a request, print what it cost, and return its answer."""
    from django.db import connection

    statements = 0

    def count(execute: Any, *given: Any) -> Any:
        nonlocal statements
        statements += 1
        return execute(*given)

    began, worked = time.perf_counter(), time.process_time()
    with connection.execute_wrapper(count):
        answer = work()
    figures = {
        "request": name,
        "status": answer.status_code,
        "seconds": round(time.perf_counter() - began, 2),
        "processor_seconds": round(time.process_time() - worked, 2),
        "statements": statements,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    sys.stdout.write(json.dumps(figures) + "\n")
    if answer.status_code >= 300:
        raise SystemExit(answer.content.decode()[:2000])
    found: dict[str, Any] = answer.json()
    return found


if __name__ == "__main__":
    main()
