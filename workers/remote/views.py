"""Let remote workers in, and answer each of their steps.

Nothing here waits for a database that is away: the worker does, and takes the step again.
"""

from __future__ import annotations

import re
from typing import Any

from django.http import HttpResponse
from django.utils.text import capfirst
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from synth.api.authentication import ApiKeyAuthentication, KeyPermission, key_of
from synth.models import ApiKey
from ttsweb.http.api import ApiProblem, BoundedParser
from workers.kinds import patience
from workers.remote import messages as m
from workers.remote.steps import CALLS, pause, shared_codes
from workers.site.local import LocalSite

MAX_MESSAGE_BYTES = 64 << 20  # a clip of a minute as FLAC, or takes for minutes of speech
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,100}")


class WorkerPermission(KeyPermission):
    """Let in nobody but keys with the scope `worker`, of people who are staff."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Say whether a worker asks.

        Raises:
            ApiProblem: 403 scope_missing.
        """
        if not super().has_permission(request, view):
            return False
        key = key_of(request)
        return key is not None and bool(getattr(request.user, "is_staff", False))


class MessageParser(BoundedParser):
    """Hand the body on as it is."""

    media_type = m.MEDIA_TYPE
    too_large = "The message is too large: at most {limit} bytes are allowed."

    def max_bytes(self) -> int:
        return MAX_MESSAGE_BYTES

    def read(self, body: bytes) -> bytes:
        return body


class WorkerCallView(APIView):
    """One step of a remote worker."""

    authentication_classes = (ApiKeyAuthentication,)
    permission_classes = (WorkerPermission,)
    parser_classes = (MessageParser,)
    read_scopes = write_scopes = (ApiKey.Scope.WORKER,)

    @extend_schema(exclude=True)
    def post(self, request: Request, call: str) -> HttpResponse:
        """Take a step and answer what came of it."""
        _check_protocol(request)
        if call not in CALLS:
            raise ApiProblem(404, "not_found", "There is no such step of a worker.")
        kind, step = CALLS[call]
        request._request.is_audited = call == "begin"  # type: ignore[attr-defined]  # for the log
        name = _name_of(request)
        body = request.data if isinstance(request.data, bytes) else b""
        site = LocalSite(name, shared_codes(), pause.note, lambda *_: None, lambda: False)
        waiting = patience.set(0.0)
        try:
            answer = step(site, m.read(kind, body))
        except m.BadMessageError as error:
            raise ApiProblem(400, "message_unfit", f"The message is unfit: {error}.") from error
        finally:
            patience.reset(waiting)
        if site.refusal:
            raise ApiProblem(409, "worker_name_taken", f"{capfirst(site.refusal)}.")
        return HttpResponse(m.write(answer), content_type=m.MEDIA_TYPE)


def _check_protocol(request: Request) -> None:
    given = request.headers.get(m.PROTOCOL_HEADER, "")[:20]
    if given != str(m.PROTOCOL):
        sentence = (
            f"This worker speaks version {given or 'none'} of the workers' protocol, and this site "
            f"version {m.PROTOCOL}. Install the site's release of ttsweb on the worker's host."
        )
        raise ApiProblem(409, "worker_version_unfit", sentence)


def _name_of(request: Request) -> str:
    """Return under which name claims are made: that of the key, then the worker's own."""
    own, key = request.headers.get(m.NAME_HEADER, ""), key_of(request)
    if not _NAME.fullmatch(own):
        raise ApiProblem(400, "worker_name_unfit", f"Send the worker's name as {m.NAME_HEADER}.")
    assert key is not None  # the permission asks for one
    return f"{key.pk.hex[:12]}/{own}"
