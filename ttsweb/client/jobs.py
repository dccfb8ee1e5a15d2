"""The voices, jobs and batches of a server and its review list, as the client sees them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack, cast

from ttsweb.client.http import ClientError, Http, NotFoundError, VoiceFailedError, read_json
from ttsweb.client.resource import (
    FileResource,
    OnBytes,
    Resource,
    file_part,
    form_of,
    is_id,
    path_of,
    speakers,
    wait_for,
)
from ttsweb.client.types import (
    VOICE_FINAL,
    Approvals,
    Batch,
    BatchOptions,
    Clip,
    Item,
    Job,
    JobChanges,
    JobOptions,
    ReviewItem,
    Segment,
    Voice,
)

NAMES_LISTED = 20


class Voices(Resource[Voice]):
    """The voices of a server; every method raises `ClientError`s."""

    kind = "voices"
    final = VOICE_FINAL

    def find(self, name_or_id: str) -> Voice:
        """Return a voice by its id, or by its name in whatever case, as the server takes it.

        Raises:
            NotFoundError: voice_not_found, with the names that there are.
            ConflictError: voice_ambiguous_name, others share several of this name.
        """
        if is_id(name_or_id):
            return self.get(name_or_id)
        for voice in self._http.pages("/api/v1/voices", {"means": name_or_id}):
            return cast("Voice", voice)
        names = [voice["name"] for voice in self.list()]
        raise NotFoundError(
            404, "voice_not_found", f"No voice is named {name_or_id!r}. {_listing(names)}"
        )

    def create(
        self,
        name: str,
        clips: Sequence[Clip],
        *,
        consent: str,
        description: str = "",
        language: str = "",
        shared: bool = False,
        cache_codes: bool = True,
    ) -> Voice:
        """Make a voice; it speaks once it was encoded, see `wait_ready`.

        Args:
            consent: how the speaker agreed; the server keeps it.
            shared: True lets every other user of the server speak with it.
            cache_codes: False makes workers keep nothing of this voice in memory.
        """
        files = [("audio", clip.read()) for clip in clips]
        data = {
            "name": name,
            "consent_statement": consent,
            "transcript": [clip.transcript for clip in clips],
            "description": description,
            "language": language,
            "shared": json.dumps(shared),
            "cache_codes": json.dumps(cache_codes),
        }
        found = self._read("POST", "/api/v1/voices", data=data, files=files, repeatable=False)
        return cast("Voice", found)

    def propose_transcript(
        self, file: Path | str, *, language: str = "", timeout: float | None = None
    ) -> str:
        """Return what the server's transcriber hears in a clip, for a person to correct.

        Raises:
            ConflictError: transcriber_missing, the server has none.
            ClientError: what the transcriber could not hear, by code and sentence.
            WaitTimeoutError: it had heard nothing after `timeout` seconds.
            OSError: the file cannot be read.
        """
        files, data = {"audio": file_part(file)}, {"language": language}
        made = self._read("POST", "/api/v1/transcripts", data=data, files=files, repeatable=False)
        place = f"/api/v1/transcripts/{made['id']}"
        heard: dict[str, Any] = wait_for(
            lambda _: cast("dict[str, Any]", self._read("GET", place)),
            lambda row: row["finished_at"] is not None,
            "the transcript",
            timeout,
            None,
            self._http.sleep,
        )
        if heard["status"] != "done":
            raise ClientError(heard["error_code"], heard["error_message"])
        return str(heard["text"])

    def export(self, voice_id: str, target: Path, *, on_bytes: OnBytes | None = None) -> Path:
        """Write a voice as one archive, with its clips, transcripts, codes and consent.

        Raises:
            DownloadError: several tries in a row brought nothing.
            OSError: the file cannot be written.
        """
        return self._download(voice_id, "/export", target, on_bytes)

    def import_(self, archive: Path, *, name: str = "", shared: bool = False) -> Voice:
        """Make a voice of an archive that `export` has written, of this server or another one.

        Args:
            name: instead of the name in the archive.

        Raises:
            OSError: the file cannot be read.
        """
        data = form_of({"shared": shared, **({"name": name} if name else {})})
        with archive.open("rb") as file:
            found = self._read(
                "POST",
                "/api/v1/voices/import",
                data=data,
                files={"archive": (archive.name, file, "application/zip")},
                repeatable=False,
                retries=0,  # the file has been read by then
            )
        return cast("Voice", found)

    def wait_ready(
        self,
        voice_id: str,
        *,
        timeout: float | None = None,
        on_update: Callable[[Voice], None] | None = None,
    ) -> Voice:
        """Return a voice once it is encoded.

        Args:
            on_update: called with the voice about once a second.

        Raises:
            VoiceFailedError: it cannot be encoded; code and sentence say why.
            WaitTimeoutError: it was not ready after `timeout` seconds.
        """
        voice = self.wait(voice_id, timeout=timeout, on_update=on_update)
        if voice["status"] == "failed":
            raise VoiceFailedError(voice["error_code"], voice["error_message"])
        return voice


def _listing(names: Sequence[str]) -> str:
    if not names:
        return "There are no voices yet; add one with ./tts voices add."
    more = " and more" if len(names) > NAMES_LISTED else ""
    return f"There are: {', '.join(sorted(names)[:NAMES_LISTED])}{more}."


class Jobs(FileResource[Job]):
    """The jobs of the key's user; every method raises `ClientError`s."""

    kind = "jobs"

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
        fields: dict[str, Any] = {"text": text, **options, **speakers(voice, voices)}
        if references is not None:
            fields["references"] = {str(n): _inline(clip) for n, clip in references.items()}
        parts: dict[str, Any] = {"json": fields}
        if reference is not None:
            fields["reference_text"] = reference.transcript
            parts = {"data": form_of(fields), "files": {"reference_audio": reference.read()}}
        return cast("Job", self._make("jobs", idempotency_key, **parts))

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
        joined = None if ids is None else ",".join(ids)
        return self._rows(status=status, voice=voice, created_after=created_after, ids=joined)

    def segments(self, job_id: str) -> Iterator[Segment]:
        return self._pages(path_of("jobs", job_id, "/segments"))

    def change(self, job_id: str, **changes: Unpack[JobChanges]) -> Job:
        """Change a job's priority, deadline or retention; what is not given stays.

        Raises:
            ConflictError: job_ended, priority and deadline mean nothing any more.
        """
        return self._ask(Job, "PATCH", job_id, json=dict(changes))


class Batches(FileResource[Batch]):
    """The batches of the key's user; every method raises `ClientError`s."""

    kind = "batches"
    file_path = "/results"

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
        chosen = {**(defaults or {}), **speakers(voice, None)}
        if isinstance(items, (Path, str)):
            parts: dict[str, Any] = {
                "data": {**options, "defaults": json.dumps(chosen)},
                "files": {"file": file_part(items, "application/jsonl")},
            }
        else:
            parts = {"json": {**options, "items": list(items), "defaults": chosen}}
        return cast("Batch", self._make("batches", idempotency_key, **parts))

    def list(self, *, status: str | None = None) -> Iterator[Batch]:
        """Yield batches, newest first; `status` is one or several, by commas."""
        return self._rows(status=status)

    def items(self, batch_id: str, *, status: str | None = None) -> Iterator[Item]:
        """Yield the items of a batch in their order; `status` is one or several, by commas."""
        return self._pages(path_of("batches", batch_id, "/items"), status=status)


class Review:
    """The review list of the key's user; every method raises `ClientError`s."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(
        self,
        *,
        book: str | None = None,
        job: str | None = None,
        flag: str | None = None,
        status: str | None = None,
        approved: bool = False,
        heard: bool | None = None,
    ) -> Iterator[ReviewItem]:
        """Yield segments that need somebody's ears, worst first.

        Args:
            book, job: the id of one.
            flag, status: one or several, by commas; a status is `failed` or `done`.
            heard: True leaves out what has no take to listen to, False yields that alone.
            approved: yield those that were approved or chosen, in place of those.
        """
        given = {
            "book": book,
            "job": job,
            "flag": flag,
            "status": status,
            "heard": None if heard is None else json.dumps(heard),
            "approved": "true" if approved else None,
        }
        params = {name: value for name, value in given.items() if value is not None}
        return cast("Iterator[ReviewItem]", self._http.pages("/api/v1/review", params))

    def get(self, segment_id: int) -> ReviewItem:
        return cast("ReviewItem", self._read("GET", f"/{int(segment_id)}"))

    def approve(self, segment_id: int, take: str) -> ReviewItem:
        """Approve the take that was listened to; once more it changes nothing.

        Raises:
            ConflictError: take_changed, the segment keeps another one by now; segment_unfinished,
                segment_without_audio, job_cancelled.
        """
        answer = self._read("POST", f"/{int(segment_id)}/approve", json={"take": take})
        return cast("ReviewItem", answer)

    def approve_all(self, takes: Mapping[int, str]) -> Approvals:
        """Approve up to 200 takes, by segment; what cannot be is in `refused`."""
        body = {"takes": [{"segment": segment, "take": take} for segment, take in takes.items()]}
        return cast("Approvals", self._read("POST", "/approve", json=body))

    def _read(self, method: str, rest: str, **parts: Any) -> Any:
        return read_json(self._http.send(method, f"/api/v1/review{rest}", **parts))


def _inline(clip: Clip) -> dict[str, str]:
    _, content = clip.read()
    audio = f"data:application/octet-stream;base64,{base64.b64encode(content).decode()}"
    return {"audio": audio, "text": clip.transcript}
