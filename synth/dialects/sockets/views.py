"""Answer plain requests at the addresses of WebSockets: who may speak there is asked by these."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from synth.dialects.fish import FishView
from synth.dialects.views import DialectView, OpenAIView
from synth.models import ApiKey
from ttsweb.http.api import ApiProblem


class _SocketMixin(DialectView):
    """An address that speaks the WebSocket protocol alone."""

    read_scopes = (ApiKey.Scope.JOBS,)  # what is heard here is rendered first

    def get(self, request: Request) -> Response:
        """Refuse what is no handshake; SpeechSockets takes this for leave to open one.

        Raises:
            ApiProblem: 426 upgrade_required.
        """
        sentence = f"{request.path} is a WebSocket; docs/clients.md describes its messages."
        headers = {"Upgrade": "websocket"}
        raise ApiProblem(426, "upgrade_required", sentence, headers=headers)


class SocketView(_SocketMixin, OpenAIView):
    """Where OpenAI's dialect is spoken."""


class FishSocketView(_SocketMixin, FishView):
    """Where Fish Audio's is."""
