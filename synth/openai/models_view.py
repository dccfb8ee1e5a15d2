"""List the models that a request may name: the loaded checkpoint, and its other names."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from rest_framework.request import Request
from rest_framework.response import Response

from synth.card import read_card
from synth.openai.errors import OpenAIView
from ttsweb.http.api import ApiProblem, check_query

# The names that clients of OpenAI's API ask for; each of them is the one model that there is.
OPENAI_ALIASES = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")


class ModelsView(OpenAIView):
    """All models."""

    def get(self, request: Request) -> Response:
        """List the model's own name and the names that clients of OpenAI ask for."""
        check_query(request, ())
        return Response({"object": "list", "data": [_shown(name) for name in model_names()]})


class ModelView(OpenAIView):
    """One model."""

    def get(self, request: Request, name: str) -> Response:
        """Return the model of this name."""
        check_query(request, ())
        return Response(_shown(check_model(name)))


def model_names() -> list[str]:
    """Return what a request may name, the checkpoint's own name first.

    Raises:
        CardError: the checkpoint's card cannot be used.
    """
    return list(dict.fromkeys((read_card(settings.CHECKPOINT).name, *OPENAI_ALIASES)))


def check_model(name: str) -> str:
    """Return the name of a model that is there.

    Raises:
        ApiProblem: 404 model_not_found.
    """
    names = model_names()
    if name not in names:
        raise ApiProblem(
            404,
            "model_not_found",
            f"There is no model {name[:100]!r}; GET /v1/models lists these: {', '.join(names)}.",
            attr="model",
        )
    return name


def _shown(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": _created(), "owned_by": "ttsweb"}


def _created() -> int:
    """Return when the checkpoint's folder was written, in Unix seconds; 0 where none is here."""
    try:
        return int(settings.CHECKPOINT.stat().st_mtime)
    except OSError:
        return 0
