"""Say errors over HTTP, as far as that needs neither a view nor Django's settings.

The bodies of problem+json and of other services' errors, the status of every refusal by its code
(errors of the domain know codes alone), and a database that is away for a moment.
"""

from __future__ import annotations

import errno
import json
import logging
import re
import sqlite3
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Protocol

from ttsweb.configuration.library import CONTENT_POLICY, CONTENT_POLICY_HEADER
from ttsweb.http.asgi_ask import Send
from ttsweb.leases import DATABASE_AWAY
from ttsweb.refusals import RefusedError
from ttsweb.storage import StorageAwayError

PROBLEM_TYPE = "application/problem+json"
_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}

logger = logging.getLogger(__name__)


class ErrorShape(Protocol):
    """Make the body of an error in a dialect; `param` is the request field at fault."""

    def __call__(
        self, status: int, code: str, message: str, *, param: str | None = None
    ) -> dict[str, Any]: ...


def problem_body(
    status: int, code: str, detail: str, errors: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return the members of a problem: type, title, status, detail, code, errors.

    What a request says may come back in it, so halves of surrogate pairs, which UTF-8 cannot write,
    are replaced.
    """
    return {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": _writable(detail),
        "code": code,
        "errors": [{name: _writable(value) for name, value in one.items()} for one in errors],
    }


def error_body(status: int, code: str, message: str, *, param: str | None = None) -> dict[str, Any]:
    """Return `{"error": {message, type, param, code}}`, as clients of OpenAI's API expect it.

    `param` is the request field at fault; texts are as in `problem_body`.
    """
    kind = _OPENAI_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    error = {"message": _writable(message), "type": kind, "code": code}
    return {"error": error | {"param": _writable(param)}}


def fish_error(status: int, code: str, message: str, *, param: str | None = None) -> dict[str, Any]:
    """Return `{status, message, code, param}`, of which clients of Fish read the first two."""
    said = {"status": status, "message": _writable(message), "code": code}
    return said | {"param": _writable(param)}


def elevenlabs_error(
    status: int, code: str, message: str, *, param: str | None = None
) -> dict[str, Any]:
    """Return `{"detail": {status, message, param}}`, in which ElevenLabs' status is a code."""
    said = {"status": code, "message": _writable(message), "param": _writable(param)}
    return {"detail": said}


_DIALECTS: tuple[tuple[re.Pattern[str], ErrorShape], ...] = (
    (re.compile(r"/(v1/(tts|health)|model)(/|$)"), fish_error),
    (re.compile(r"/v1/(text-to-speech|voices)(/|$)"), elevenlabs_error),
    (re.compile(r"/(v1|openai)/"), error_body),
)


def error_shape(path: str) -> ErrorShape | None:
    """Return what makes the errors of the dialect that an address belongs to; None for ours."""
    return next((shape for pattern, shape in _DIALECTS if pattern.match(path)), None)


def _writable(value: Any) -> Any:
    """Return a text that can be written as UTF-8; anything else as it is."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


async def send_problem(
    send: Send, status: int, code: str, detail: str, headers: Mapping[str, str], path: str = ""
) -> None:
    """Answer a connection that does not come to Django, in the dialect of its address."""
    shape = error_shape(path)
    body = json.dumps((shape or problem_body)(status, code, detail)).encode()
    told = {
        "content-type": "application/json" if shape else PROBLEM_TYPE,
        "content-length": str(len(body)),
        CONTENT_POLICY_HEADER: CONTENT_POLICY,
        **headers,
    }
    pairs = [(name.lower().encode(), value.encode()) for name, value in told.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


AWAY = RefusedError(
    "database_unavailable",
    "The database does not answer at the moment. Send the request again after `Retry-After` "
    "seconds; with an `Idempotency-Key` nothing is made twice.",
    retry_after=2,
)


STORAGE_RETRY_SECONDS = 5


def away_of(error: BaseException | None) -> RefusedError | None:
    """Return the refusal for a database or a storage that may be back in a moment, else None."""
    if is_database_away(error):
        return AWAY
    if isinstance(error, StorageAwayError) and error.errno != errno.ENOSPC:
        return RefusedError(
            "storage_unavailable",
            "The storage cannot be used at the moment. Send the request again after `Retry-After` "
            "seconds; with an `Idempotency-Key` nothing is made twice.",
            retry_after=STORAGE_RETRY_SECONDS,
        )
    return None


def is_database_away(error: BaseException | None) -> bool:
    """Return whether the same statement may well pass in a moment: no connection, or it is locked.

    SQLite has the same class of error for a table that is not there.
    """
    if not isinstance(error, DATABASE_AWAY):
        return False
    cause = error.__cause__
    code = getattr(cause, "sqlite_errorcode", None)
    return not isinstance(cause, sqlite3.OperationalError) or code != sqlite3.SQLITE_ERROR


_CODES = {
    400: """
        archive_digest_mismatch archive_invalid archive_version_unknown
        batch_empty bit_rate_unfit block_unknown book_batch_file_missing book_empty
        character_unknown chapter_empty chapter_unknown clip_empty clip_not_audio clip_required
        codes_invalid codes_of_other_clip codes_required scopes_unfit cover_unreadable csv_columns
        deadline_past edit_invalid file_empty file_not_utf8 file_too_slow find_empty
        given_by_entry history_not_supported language_invalid lexicon_too_slow loudness_unfit
        manifest_empty manifest_header_invalid manifest_not_utf8
        merge_mixed merge_not_adjacent merge_too_few order_incomplete
        pattern_empty pattern_invalid pattern_too_slow pls_doctype pls_invalid
        sample_rate_unfit say_invalid speaker_unknown split_invalid spoken_invalid spoken_too_long
        text_empty text_has_tags text_invalid text_not_text text_unspeakable
        title_invalid too_long too_many_clips too_many_edits too_many_entries too_many_urls
        transcript_not_text transcript_required transcript_too_long
        url_encoded url_invalid url_private_address url_redirects url_references_off url_scheme
        url_status url_timeout url_unreachable url_unresolvable
        voice_ambiguous voice_invalid voice_required voice_unfit
        segment_text_too_long
    """,
    403: "lexicon_shared",
    404: """
        book_batch_not_found book_not_found book_not_in_batch book_without_audio entry_not_found
        lexicon_not_found segment_not_found take_not_found voice_not_found
    """,
    409: """
        batch_not_ended book_batch_closed book_batch_without_hold book_failed book_not_finished
        book_not_planned book_not_started book_nothing_to_speak book_started
        clip_gone codec_unknown codes_of_other_codec consent_withdrawn credits_incomplete
        entry_ambiguous entry_has_file item_of_batch job_cancelled job_ended job_not_ended
        lexicon_disabled lexicon_name_taken nothing_to_retry options_invalid pauses_unknown
        plan_changed
        reference_gone sample_not_ready segment_cancelled segment_unfinished segment_without_audio
        take_changed transcriber_missing too_many_book_files too_many_endpoints
        voice_ambiguous_name voice_deleted voice_failed voice_name_taken voice_not_ready
        voice_not_shared voices_not_ready
        chapter_unspoken lexicon_full plan_unfit
    """,
    410: "book_gone clip_lost",
    413: """
        archive_too_large batch_too_long batch_too_many_items book_batch_too_many clip_too_large
        codes_too_large cover_too_large file_too_large text_too_long url_too_large
        upload_above_limit
    """,
    422: "idempotency_key_reused",
    429: "key_limit_chars key_limit_jobs key_limit_requests key_limit_stored_bytes "
    "sign_in_locked too_many_transcripts",
    500: "book_text_lost",
    503: "checkpoint_card_invalid database_unavailable secret_unreadable storage_unavailable",
}
# By code, or by case where uses of a code differ: the last line of some.
STATUSES = {code: status for status, codes in _CODES.items() for code in codes.split()}


def status_of(error: RefusedError) -> int:
    """Return the HTTP status that says what an error says."""
    code = error.case or error.code
    if code not in STATUSES:
        logger.error("no status is known for the code %s; 400 is answered", code)
    return STATUSES.get(code, 400)
