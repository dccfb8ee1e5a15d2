"""What the views of all dialects share: errors in a dialect's shape, and what was made of a call.

Clients of other services send fields that the model cannot act on. They are answered all the same,
and the answer names the fields; what is ignored often is seen in `GET /api/v1/stats`.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.db.models import F
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.api.authentication import DialectKeyAuthentication
from synth.card import CardError
from synth.dialects.speech_wait import NO_RETRY, THEN_HEADER
from synth.models import IgnoredField
from ttsweb.http.api import ApiProblem, check_query, problem_response
from ttsweb.http.problems import ErrorShape, error_body

IGNORED_HEADER, MODEL_HEADER, VOICE_HEADER = "X-TTS-Ignored", "X-TTS-Model", "X-TTS-Voice"
MOST_NAMED = 30  # fields that the header names
MOST_COUNTED = 200  # names of one dialect; clients send what they like
OTHERS = "(others)"
_MOST_CHARS = 60
_COUNTABLE = re.compile(r"[A-Za-z][\w.-]{0,59}", re.ASCII)
_READABLE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in "%,")


def header_text(text: str) -> str:
    """Return a text for a header: in ASCII as it is, else as in a URL, in UTF-8 with `%`."""
    return quote(text, safe=_READABLE, errors="replace")


def ignored_header(names: Iterable[str]) -> str:
    """Return the names of fields, separated by commas; long ones and long lists are cut."""
    found = sorted(set(names))
    shown = [header_text(name[:_MOST_CHARS]) for name in found[:MOST_NAMED]]
    return ", ".join([*shown, *(["..."] if len(found) > MOST_NAMED else [])])


def count_ignored(dialect: str, names: Iterable[str]) -> None:
    """Add one to the counter of each field."""
    counted = {name if _COUNTABLE.fullmatch(name) else OTHERS for name in names}
    if not counted:
        return
    rows = IgnoredField.objects.filter(dialect=dialect)
    known = set(rows.filter(name__in=counted).values_list("name", flat=True))
    new = counted - known
    if new - {OTHERS} and rows.count() + len(new) > MOST_COUNTED:
        new = {OTHERS}
    for name in sorted(new):
        rows.get_or_create(dialect=dialect, name=name)
    rows.filter(name__in=known | new).update(count=F("count") + 1)


def ignored_counts() -> dict[str, dict[str, int]]:
    """Return how many calls had each field in vain, by dialect."""
    found: dict[str, dict[str, int]] = {}
    for row in IgnoredField.objects.order_by("dialect", "-count", "name"):
        found.setdefault(row.dialect, {})[row.name] = row.count
    return found


REQUEST_HEADER = "X-Request-Id"  # clients put it into their errors and logs
_PARAMS = {  # our names of fields -> theirs
    "text": "input",
    "format": "response_format",
    "reference": "ref_audio",
    "reference.audio": "ref_audio",
    "audio": "audio_sample",
    "audio.0": "audio_sample",
    "transcript.0": "transcript",
    "consent_statement": "consent",
}
_AZURE_VERSION = "api-version"
_WORTH_RETRYING = (408, 429)

logger = logging.getLogger(__name__)


def error_response(
    exc: Exception, context: Mapping[str, Any], make_body: ErrorShape, params: Mapping[str, str]
) -> Response:
    """Answer any exception of a view; one that nobody foresaw is logged and a 500.

    Args:
        make_body: makes the body, in the dialect's shape.
        params: the dialect's names of our fields, where they differ.
    """
    if isinstance(exc, CardError):
        exc = ApiProblem(503, "checkpoint_card_invalid", str(exc), headers=NO_RETRY)
    problem = problem_response(exc, context)
    if problem is None:
        logger.error("a request of a dialect failed unexpectedly", exc_info=exc)
        sentence = "The server failed unexpectedly; its log has the details."
        return Response(make_body(500, "server_error", sentence), status=500)
    data = problem.data
    attr = next((item["attr"] for item in data["errors"] if item["attr"]), None)
    headers = {name: value for name, value in problem.items() if name.lower() != "content-type"}
    if 400 <= problem.status_code < 500 and problem.status_code not in _WORTH_RETRYING:
        # Where waiting helps, Retry-After says so: a voice that is being encoded.
        headers = ({} if "Retry-After" in headers else NO_RETRY) | headers
    param = params.get(attr, attr) if attr else None
    body = make_body(problem.status_code, data["code"], data["detail"], param=param)
    answer = Response(body, status=problem.status_code, headers=headers)
    if THEN_HEADER in headers:
        # Django would log an error for every call that waits; this answer is seldom the last one.
        answer._has_been_logged = True  # type: ignore[attr-defined]  # Django's own mark
    return answer


class DialectView(APIView):
    """A view that takes our API keys where other services have theirs.

    It tells its caller by headers what it made of the request, also with an error.

    `dialect` names the counters of ignored fields; `error_shape` makes the body of an error;
    `params` are the dialect's names of our fields, where they differ. `report` has the headers,
    whose values may be any text, or several.
    """

    authentication_classes: tuple[type[BaseAuthentication], ...] = (DialectKeyAuthentication,)
    schema = None  # the other service's own reference says what it takes
    dialect = ""
    error_shape: ErrorShape = staticmethod(error_body)
    params: Mapping[str, str] = {}

    def get_exception_handler(self) -> Any:
        return lambda exc, context: error_response(exc, context, self.error_shape, self.params)

    def setup(self, request: Any, *args: Any, **kwargs: Any) -> None:
        super().setup(request, *args, **kwargs)
        self.report: dict[str, str | Sequence[str]] = {REQUEST_HEADER: uuid.uuid4().hex}
        self._ignored: set[str] = set()

    def ignore(self, names: Iterable[str]) -> None:
        """Name fields in the header, and count each in this call."""
        new = set(names) - self._ignored
        self._ignored |= new
        count_ignored(self.dialect, new)

    def finalize_response(self, request: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
        answer = super().finalize_response(request, response, *args, **kwargs)
        for name, said in self.report.items():
            texts = [said] if isinstance(said, str) else said
            answer.headers[name] = ", ".join(map(header_text, texts))
        if self._ignored:
            answer.headers[IGNORED_HEADER] = ignored_header(self._ignored)
        return answer


class OpenAIView(DialectView):
    """A view of OpenAI's dialect.

    `public_lists` lets everybody read where TTS_OPENAI_PUBLIC_VOICES says so.
    """

    dialect = "openai"
    params = _PARAMS
    public_lists = False

    @property
    def is_public(self) -> bool:
        """Whether this request needs no key."""
        is_read = self.request.method == "GET"
        return self.public_lists and is_read and settings.OPENAI_PUBLIC_VOICES

    def perform_authentication(self, request: Request) -> None:
        """Find who asks; where no key is needed, one that opens nothing is as none."""
        try:
            super().perform_authentication(request)
        except AuthenticationFailed:
            if not self.is_public:
                raise

    def get_permissions(self) -> Any:
        return [AllowAny()] if self.is_public else super().get_permissions()

    def check_query(self, request: Request) -> None:
        """Refuse or ignore the query, but for what each request to Azure has in it.

        Raises:
            ValidationError: 400 unknown_field, where TTS_OPENAI_STRICT is on.
        """
        known = (_AZURE_VERSION,)
        if settings.OPENAI_STRICT:
            check_query(request, known)
        else:
            self.ignore(name for name in request.query_params if name not in known)


class UnknownRouteView(OpenAIView):
    """Every address below /v1/ and /openai/ that leads nowhere."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse before the method is looked at."""
        sentence = (
            f"There is nothing at {request.path}. Served here: POST /v1/audio/speech, "
            "GET and POST /v1/audio/voices, DELETE /v1/audio/voices/{id}, GET /v1/models, "
            "POST /openai/deployments/{model}/audio/speech; POST /v1/tts and GET /model as Fish "
            "has them; POST /v1/text-to-speech/{voice} and GET /v1/voices as ElevenLabs does."
        )
        raise ApiProblem(404, "not_found", sentence)
