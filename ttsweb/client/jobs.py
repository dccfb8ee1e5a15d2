"""The jobs of a server, as the client sees them."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack, cast

from ttsweb.client.download import OnBytes, download
from ttsweb.client.http import Http, read_json
from ttsweb.client.paths import path_of
from ttsweb.client.types import Clip, Job, JobChanges, JobOptions, Segment
from ttsweb.client.waiting import poll_work, wait_for_end


class Jobs:
    """The jobs of the key's user; every method raises `ClientError`s."""

    def __init__(self, http: Http) -> None:
        """Use a connection pool; `Client` makes this."""
        self._http = http

    def create(
        self,
        text: str,
        *,
        voice: str | None = None,
        voices: Mapping[int, str] | None = None,
        reference: Clip | None = None,
        references: Mapping[int, Clip] | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> Job:
        """Queue a text, spoken by a voice (its id or name) or as in a clip of its own.

        The request carries an `Idempotency-Key`, made here unless given: however often it is
        repeated, one job is made.

        Args:
            voice, reference: those of speaker 0, who has one of the two.
            voices, references: those of several, by the numbers of `<|speaker:N|>` in the text.
        """
        fields: dict[str, Any] = {"text": text, **options}
        if voice is not None:
            fields["voice"] = voice
        if voices is not None:
            fields["voices"] = {str(speaker): name for speaker, name in voices.items()}
        if references is not None:
            fields["references"] = {str(n): _inline(clip) for n, clip in references.items()}
        body: dict[str, Any] = {"json": fields}
        if reference is not None:
            fields["reference_text"] = reference.transcript
            body = {"data": _as_form(fields), "files": {"reference_audio": reference.read()}}
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        answer = self._http.send("POST", "/api/v1/jobs", headers=headers, **body)
        return cast("Job", read_json(answer))

    def list(
        self,
        *,
        status: str | None = None,
        voice: str | None = None,
        created_after: str | None = None,
        ids: Sequence[str] | None = None,
    ) -> Iterator[Job]:
        """Yield jobs, newest first.

        Args:
            status: one or several, by commas.
            voice: id or name.
            created_after: a moment with its zone, such as 2026-01-31T12:00:00Z.
            ids: at most 200; those that are not there are left out.
        """
        given = {"status": status, "voice": voice, "created_after": created_after}
        params = {name: value for name, value in given.items() if value is not None}
        if ids is not None:
            params["ids"] = ",".join(ids)
        return cast("Iterator[Job]", self._http.pages("/api/v1/jobs", params))

    def get(self, job_id: str) -> Job:
        """Return a job."""
        return cast("Job", read_json(self._http.get(path_of("jobs", job_id))))

    def poll(self, job_id: str, seconds: float) -> Job:
        """Return a job once it has ended or about so many seconds are over."""
        return cast("Job", poll_work(self._http, path_of("jobs", job_id), seconds))

    def wait(
        self,
        job_id: str,
        *,
        timeout: float | None = None,
        on_update: Callable[[Job], None] | None = None,
    ) -> Job:
        """Return a job once it has ended, in whatever way; its `status` says how.

        Args:
            on_update: called with the job about once a second.

        Raises:
            WaitTimeoutError: it had not ended after `timeout` seconds; it goes on.
        """
        return wait_for_end(
            lambda seconds: self.poll(job_id, seconds),
            lambda job: job["status"],
            f"the job {job_id}",
            timeout=timeout,
            on_update=on_update,
        )

    def segments(self, job_id: str) -> Iterator[Segment]:
        """Yield the segments of a job in their order."""
        pages = self._http.pages(path_of("jobs", job_id, "/segments"))
        return cast("Iterator[Segment]", pages)

    def change(self, job_id: str, **changes: Unpack[JobChanges]) -> Job:
        """Change a job's priority, deadline or retention; what is not given stays.

        Raises:
            ConflictError: job_ended, priority and deadline mean nothing any more.
        """
        answer = self._http.send("PATCH", path_of("jobs", job_id), json=dict(changes))
        return cast("Job", read_json(answer))

    def cancel(self, job_id: str) -> Job:
        """Cancel a job; one that has ended stays as it is."""
        return cast("Job", read_json(self._http.send("POST", path_of("jobs", job_id, "/cancel"))))

    def retry(self, job_id: str) -> Job:
        """Queue once more what failed or was cancelled; what is finished is kept."""
        answer = self._http.send("POST", path_of("jobs", job_id, "/retry"), repeatable=False)
        return cast("Job", read_json(answer))

    def delete(self, job_id: str) -> None:
        """Delete a job in any state, and its files."""
        self._http.send("DELETE", path_of("jobs", job_id), repeatable=False)

    def download(self, job_id: str, target: Path | str, on_bytes: OnBytes | None = None) -> Path:
        """Write a job's file, all of it or nothing; a broken download is gone on with.

        Raises:
            ConflictError: job_not_finished.
            NotFoundError: job_without_audio, it failed or was cancelled.
            DownloadError: the connection broke too often.
            OSError: the file cannot be written.
        """
        return download(self._http, path_of("jobs", job_id, "/audio"), Path(target), on_bytes)


def _inline(clip: Clip) -> dict[str, str]:
    """Return a clip as JSON has it."""
    _, content = clip.read()
    audio = f"data:application/octet-stream;base64,{base64.b64encode(content).decode()}"
    return {"audio": audio, "text": clip.transcript}


def _as_form(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields as a form has them: what is no text or number is JSON."""
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in fields.items()
    }
