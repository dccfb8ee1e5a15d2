"""Name what can go wrong between a client and the server; imports neither Django nor Celery."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx


class ClientError(Exception):
    """Base of all errors of the client: `code` is stable, the text says what to do."""

    code: str

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ServerUnreachableError(ClientError):
    """No answer came, also after the repetitions; the request may have been acted on."""


class WaitTimeoutError(ClientError):
    """The time of a wait is over; what was waited for goes on."""


class VoiceFailedError(ClientError):
    """A voice could not be encoded; code and text are the server's."""


class DownloadError(ClientError):
    """A file did not arrive whole; what has arrived is kept for the next try."""


class ApiError(ClientError):
    """The server answered with an error.

    Attributes:
        status: the HTTP status.
        code: the stable name that the server gives, such as `voice_not_found`.
        detail: the sentence for a person.
        errors: `{attr, code, detail}` for each field at fault.
        retry_after: seconds after which another try makes sense; None where none were named.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Sequence[Mapping[str, Any]] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(code, detail)
        self.status, self.detail = status, detail
        self.errors, self.retry_after = list(errors), retry_after


class InvalidRequestError(ApiError):
    """400, 413, 415 or 422: the request itself has to change."""


class AuthenticationError(ApiError):
    """401 or 403: the key is missing, unknown, expired, or not allowed to do this."""


class NotFoundError(ApiError):
    """404 or 410: there is no such thing, or not any more."""


class ConflictError(ApiError):
    """409: not in the present state, such as the file of an unfinished job."""


class TooManyRequestsError(ApiError):
    """429: later."""


class ServerError(ApiError):
    """5xx: the server failed, or one before it could not reach it."""


_CLASSES: dict[int, type[ApiError]] = {
    400: InvalidRequestError,
    401: AuthenticationError,
    403: AuthenticationError,
    404: NotFoundError,
    409: ConflictError,
    410: NotFoundError,
    413: InvalidRequestError,
    415: InvalidRequestError,
    422: InvalidRequestError,
    429: TooManyRequestsError,
}


def error_of(response: httpx.Response) -> ApiError:
    """Return the error that an answer tells, of a problem+json or of whatever a proxy sent."""
    status = response.status_code
    kind = _CLASSES.get(status, ServerError if status >= 500 else ApiError)
    after = retry_after_of(response)
    problem = _problem_of(response)
    if problem is not None:
        errors = problem.get("errors")
        return kind(
            status,
            str(problem["code"]),
            str(problem.get("detail") or problem["code"]),
            errors=errors if isinstance(errors, list) else (),
            retry_after=after,
        )
    if response.is_redirect:
        target = response.headers.get("Location", "another address")
        return kind(status, "redirected", f"The server redirects to {target}; use that address.")
    return kind(
        status,
        f"http_{status}",
        f"{response.url.copy_with(query=None)} answered {_plain(response)}.",
        retry_after=after,
    )


def not_our_answer(response: httpx.Response) -> ApiError:
    """Return the error of an answer that is no JSON, such as another program's page."""
    return ApiError(
        response.status_code,
        "not_ttsweb",
        f"The server at {response.url.copy_with(query=None)} is not ttsweb; check the address.",
    )


def retry_after_of(response: httpx.Response) -> float | None:
    """Return the seconds of `Retry-After`, a number or a date; None where it names none."""
    text = response.headers.get("Retry-After", "")
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=dt.UTC)
        seconds = (moment - dt.datetime.now(dt.UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _problem_of(response: httpx.Response) -> dict[str, Any] | None:
    try:
        body = response.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) and "code" in body else None


def _plain(response: httpx.Response) -> str:
    try:
        return f"{response.status_code} {HTTPStatus(response.status_code).phrase}"
    except ValueError:
        return str(response.status_code)
