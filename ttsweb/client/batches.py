"""The batches of a server, as the client sees them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, cast

from ttsweb.client.download import OnBytes, download
from ttsweb.client.http import Http, read_json
from ttsweb.client.paths import path_of
from ttsweb.client.types import Job, JobOptions, JobStatus
from ttsweb.client.waiting import poll_work, wait_for_end

SENDING_SECONDS = 300.0  # ten thousand items are looked at before the answer comes


class Batch(TypedDict):
    """A batch and how far it is; `counts` has the number of items in each state."""

    id: str
    status: JobStatus
    progress: float
    items_total: int
    counts: dict[str, int]
    audio_seconds: float
    eta_seconds: float | None
    results_url: str | None
    error_code: str
    error_message: str
    cancel_requested: bool
    priority: str
    webhook: str
    deadline: str | None
    retention: int | str | None
    expires_at: str | None
    created_at: str
    started_at: str | None
    finished_at: str | None
    updated_at: str


class BatchOptions(TypedDict, total=False):
    """What holds for a batch as a whole; the server's defaults hold otherwise."""

    on_error: Literal["reject", "skip"]
    priority: Literal["interactive", "bulk"]
    webhook: str
    retention: int | str
    deadline: float | str


class Item(Job):
    """An item of a batch: a job and its place there."""

    item_index: int


class Batches:
    """The batches of the key's user; every method raises `ClientError`s."""

    def __init__(self, http: Http) -> None:
        """Use a connection pool; `Client` makes this."""
        self._http = http

    def submit(
        self,
        items: Sequence[Mapping[str, Any]] | Path | str,
        *,
        voice: str | None = None,
        defaults: JobOptions | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[BatchOptions],
    ) -> Batch:
        """Queue many texts: a list of `{"custom_id", "text", …}`, or a JSONL file of them.

        The request carries an `Idempotency-Key`, made here unless given: however often it is
        repeated, one batch is made.

        Args:
            voice: id or name, for items that name none.
            defaults: options for items that do not say otherwise.

        Raises:
            InvalidRequestError: `batch_items_invalid`, its `errors` name lines or items.
            OSError: the file cannot be read.
        """
        chosen: dict[str, Any] = {**(defaults or {})}
        if voice is not None:
            chosen["voice"] = voice
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        if isinstance(items, (Path, str)):
            path = Path(items)
            parts: dict[str, Any] = {
                "data": {**options, "defaults": json.dumps(chosen)},
                "files": {"file": (path.name, path.read_bytes(), "application/jsonl")},
            }
        else:
            parts = {"json": {**options, "items": list(items), "defaults": chosen}}
        timeout = max(self._http.timeout, SENDING_SECONDS)
        answer = self._http.send(
            "POST", "/api/v1/batches", headers=headers, timeout=timeout, **parts
        )
        return cast("Batch", read_json(answer))

    def list(self, *, status: str | None = None) -> Iterator[Batch]:
        """Yield batches, newest first; `status` is one or several, by commas."""
        params = {"status": status} if status is not None else {}
        return cast("Iterator[Batch]", self._http.pages("/api/v1/batches", params))

    def get(self, batch_id: str) -> Batch:
        """Return a batch."""
        return cast("Batch", read_json(self._http.get(path_of("batches", batch_id))))

    def items(self, batch_id: str, *, status: str | None = None) -> Iterator[Item]:
        """Yield the items of a batch in their order; `status` is one or several, by commas."""
        params = {"status": status} if status is not None else {}
        pages = self._http.pages(path_of("batches", batch_id, "/items"), params)
        return cast("Iterator[Item]", pages)

    def poll(self, batch_id: str, seconds: float) -> Batch:
        """Return a batch once it has ended or about so many seconds are over."""
        return cast("Batch", poll_work(self._http, path_of("batches", batch_id), seconds))

    def wait(
        self,
        batch_id: str,
        *,
        timeout: float | None = None,
        on_update: Callable[[Batch], None] | None = None,
    ) -> Batch:
        """Return a batch once it has ended, in whatever way; its `status` says how.

        Args:
            on_update: called with the batch about once a second.

        Raises:
            WaitTimeoutError: it had not ended after `timeout` seconds; it goes on.
        """
        return wait_for_end(
            lambda seconds: self.poll(batch_id, seconds),
            lambda batch: batch["status"],
            f"the batch {batch_id}",
            timeout=timeout,
            on_update=on_update,
        )

    def cancel(self, batch_id: str) -> Batch:
        """Cancel a batch and what of its items has not ended."""
        answer = self._http.send("POST", path_of("batches", batch_id, "/cancel"))
        return cast("Batch", read_json(answer))

    def retry(self, batch_id: str) -> Batch:
        """Queue the items once more that are not whole; what is finished is kept."""
        path = path_of("batches", batch_id, "/retry")
        return cast("Batch", read_json(self._http.send("POST", path, repeatable=False)))

    def delete(self, batch_id: str) -> None:
        """Delete a batch in any state, its items and all files."""
        self._http.send("DELETE", path_of("batches", batch_id), repeatable=False)

    def download(self, batch_id: str, target: Path | str, on_bytes: OnBytes | None = None) -> Path:
        """Write the zip of a batch, all of it or nothing; a broken download is gone on with.

        Raises:
            ConflictError: batch_not_finished.
            NotFoundError: batch_without_results, nothing of it was rendered or it was cancelled.
            DownloadError: the connection broke too often.
            OSError: the file cannot be written.
        """
        path = path_of("batches", batch_id, "/results")
        return download(self._http, path, Path(target), on_bytes)
