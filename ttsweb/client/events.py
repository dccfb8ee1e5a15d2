"""Follow server-sent events; a stream that ends or breaks before its end is gone on with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypedDict, cast

from ttsweb.client.http import WAIT_RETRIES, Http, pause_before

SILENT_SECONDS = 60.0  # a stream that lives says something every 15 seconds
_NO_CONTENT = 204  # it has ended, and all of it was seen


class Event(TypedDict):
    """One event; with its `id` (empty for some) a listener goes on after it."""

    id: str
    event: str
    data: dict[str, Any]


def follow(http: Http, path: str, last_event_id: str | None = None) -> Iterator[Event]:
    """Yield events until the `state` that is final, or until what they tell of was deleted.

    Args:
        last_event_id: of an event that was seen; what came after it is told.

    Raises:
        ApiError: the server answered with an error.
        ServerUnreachableError: it did not answer, or its streams broke too often in a row.
    """
    import httpx

    seen, attempt = last_event_id or "", 0
    while True:
        headers = {"Last-Event-ID": seen} if seen else {}
        timeout = httpx.Timeout(http.timeout, read=SILENT_SECONDS)
        answer = http.send(
            "GET", path, headers=headers, timeout=timeout, stream=True, retries=WAIT_RETRIES
        )
        try:
            if answer.status_code == _NO_CONTENT:
                return
            for event in _events_of(answer.iter_lines()):
                seen, attempt = event["id"] or seen, 0
                yield event
                if event["event"] == "deleted" or event["data"].get("final"):
                    return
        except httpx.RequestError as error:
            if attempt >= WAIT_RETRIES:
                raise http.unreachable(error) from error
        finally:
            answer.close()
        http.sleep(pause_before(attempt))
        attempt += 1


def _events_of(lines: Iterator[str]) -> Iterator[Event]:
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        if name:  # not a comment
            fields[name] = value.removeprefix(" ")
        elif not line and "event" in fields:
            data = cast("dict[str, Any]", json.loads(fields.get("data", "{}")))
            yield Event(id=fields.get("id", ""), event=fields["event"], data=data)
            fields = {}
