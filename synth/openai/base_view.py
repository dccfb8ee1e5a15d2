"""Give every view below /v1/ its keys, its errors, and an answer for addresses that are none."""

from __future__ import annotations

from typing import Any

from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.views import APIView

from synth.accounts.authentication import ApiKeyAuthentication
from synth.openai.errors import error_response
from ttsweb.http.api import ApiProblem


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
