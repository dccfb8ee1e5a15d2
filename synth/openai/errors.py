"""Turn what goes wrong below /v1/ into errors of OpenAI's shape, and say what to try again."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.api.accounts.authentication import ApiKeyAuthentication
from synth.card import CardError
from synth.openai.speech_wait import THEN_HEADER
from ttsweb.http.api import ApiProblem, problem_response
from ttsweb.http.problems import error_body

NO_RETRY = {"x-should-retry": "false"}  # the official client obeys it; it would try twice more
_PARAMS = {  # our names of fields -> theirs
    "text": "input",
    "format": "response_format",
    "audio": "audio_sample",
    "audio.0": "audio_sample",
    "transcript.0": "transcript",
    "consent_statement": "consent",
}
_WORTH_RETRYING = (408, 429)

logger = logging.getLogger(__name__)


def error_response(exc: Exception, context: Mapping[str, Any]) -> Response:
    """Answer any exception of a view; one that nobody foresaw is logged and a 500."""
    problem = problem_response(_as_problem(exc), context)
    if problem is None:
        logger.error("a request below /v1/ failed unexpectedly", exc_info=exc)
        return Response(
            error_body(
                500, "server_error", "The server failed unexpectedly; its log has the details."
            ),
            status=500,
        )
    data = problem.data
    attr = next((item["attr"] for item in data["errors"] if item["attr"]), None)
    headers = {name: value for name, value in problem.items() if name.lower() != "content-type"}
    if 400 <= problem.status_code < 500 and problem.status_code not in _WORTH_RETRYING:
        # Where waiting helps, Retry-After says so: a voice that is being encoded.
        headers = ({} if "Retry-After" in headers else NO_RETRY) | headers
    param = _PARAMS.get(attr, attr) if attr else None
    body = error_body(problem.status_code, data["code"], data["detail"], param=param)
    answer = Response(body, status=problem.status_code, headers=headers)
    if THEN_HEADER in headers:
        # Django would log an error for every call that waits; this answer is seldom the last one.
        answer._has_been_logged = True  # type: ignore[attr-defined]  # Django's own mark
    return answer


def _as_problem(exc: Exception) -> Exception:
    """Return the problem that says the same as a refusal of ours."""
    if isinstance(exc, CardError):
        return ApiProblem(503, "checkpoint_card_invalid", str(exc), headers=NO_RETRY)
    return exc


class OpenAIView(APIView):
    """A view that takes our API keys and answers errors as OpenAI does."""

    authentication_classes: tuple[type[BaseAuthentication], ...] = (ApiKeyAuthentication,)
    schema = None  # what it takes is told by OpenAI's own reference

    def get_exception_handler(self) -> Any:
        """Return what makes an answer of an exception."""
        return error_response


class UnknownRouteView(OpenAIView):
    """Every address below /v1/ that leads nowhere."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse before the method is looked at."""
        raise ApiProblem(
            404,
            "not_found",
            f"There is nothing at {request.path}. Served here: POST /v1/audio/speech, "
            "GET and POST /v1/audio/voices, DELETE /v1/audio/voices/{id}, GET /v1/models.",
        )
