"""What needs somebody's ears on a server, as the client sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypedDict, cast

from ttsweb.client.http import Http, read_json


class ReviewFlag(TypedDict):
    """One flag of a take, and what it means."""

    name: str
    sentence: str


class ReviewTake(TypedDict):
    """One take of a segment; `heard` is what a transcriber heard, None where none listened."""

    take: str
    seed: int
    seconds: float
    score: float | None
    flags: list[str]
    measures: list[dict[str, Any]]
    is_kept: bool
    heard: str | None
    audio_url: str


class ReviewItem(TypedDict):
    """A segment to be judged; `take` is the one that it keeps, None where it failed."""

    id: int
    job: str
    book: str | None
    title: str
    chapter: dict[str, Any]
    index: int
    text: str
    spoken_text: str
    speaker: int
    status: str
    reason: Literal["failed", "flagged", "short"] | None
    score: float | None
    flags: list[ReviewFlag]
    approved: bool
    error_code: str
    error_message: str
    take: str | None
    takes: list[ReviewTake]
    before: list[dict[str, Any]]
    after: list[dict[str, Any]]


class Approvals(TypedDict):
    """What came of many approvals; `refused` has `segment`, `code` and `detail` of each."""

    approved: list[int]
    refused: list[dict[str, Any]]


class Review:
    """The review list of the key's user; every method raises `ClientError`s."""

    def __init__(self, http: Http) -> None:
        """Use a connection pool; `Client` makes this."""
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
        given = {"book": book, "job": job, "flag": flag, "status": status}
        params = {name: value for name, value in given.items() if value is not None}
        if heard is not None:
            params["heard"] = "true" if heard else "false"
        if approved:
            params["approved"] = "true"
        return cast("Iterator[ReviewItem]", self._http.pages("/api/v1/review", params))

    def get(self, segment_id: int) -> ReviewItem:
        """Return a segment, whether or not it is listed for review."""
        return cast("ReviewItem", read_json(self._http.get(f"/api/v1/review/{int(segment_id)}")))

    def approve(self, segment_id: int, take: str) -> ReviewItem:
        """Approve the take that was listened to; once more it changes nothing.

        Raises:
            ConflictError: take_changed, the segment keeps another one by now; segment_unfinished,
                segment_without_audio, job_cancelled.
        """
        path = f"/api/v1/review/{int(segment_id)}/approve"
        answer = self._http.send("POST", path, json={"take": take})
        return cast("ReviewItem", read_json(answer))

    def approve_all(self, takes: Mapping[int, str]) -> Approvals:
        """Approve up to 200 takes, by segment; what cannot be is in `refused`."""
        body = {"takes": [{"segment": segment, "take": take} for segment, take in takes.items()]}
        answer = self._http.send("POST", "/api/v1/review/approve", json=body)
        return cast("Approvals", read_json(answer))
