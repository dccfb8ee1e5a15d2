"""Answer a poll for something unchanged without its body: weak ETag, `If-None-Match`, 304.

The tag is a digest of what the answer says, not of a row's time: a queue position or a voice's name
changes while the job's own row stays as it is. Weak, because equal answers may differ in bytes.
"""

from __future__ import annotations

import hashlib
from typing import Any

from django.utils.http import parse_etags
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

CONDITIONAL_PARAMETERS = [
    OpenApiParameter(
        "If-None-Match",
        str,
        OpenApiParameter.HEADER,
        description=(
            "ETag of an earlier answer. If nothing has changed since, the answer is 304 without "
            "a body."
        ),
    ),
    OpenApiParameter("ETag", str, OpenApiParameter.HEADER, response=[200, 304]),
]
UNCHANGED = {304: OpenApiResponse(None, "Nothing has changed since the answer with that ETag.")}


def conditional(request: Request, answer: Response) -> Response:
    """Return the answer to a GET with its ETag, or a 304 when the client has just that.

    A 304 carries the other headers of the answer, such as `Retry-After`. `If-None-Match: *` matches
    whatever there is, as RFC 9110 has it.
    """
    tag = weak_etag(answer.data)
    known = parse_etags(request.headers.get("If-None-Match", ""))
    if "*" in known or _opaque(tag) in map(_opaque, known):
        answer = Response(status=304, headers=dict(answer.items()))
    answer["ETag"] = tag
    answer["Cache-Control"] = "private, no-cache"  # may be kept by its user; asked for every time
    return answer


def weak_etag(data: Any) -> str:
    return f'W/"{hashlib.sha256(JSONRenderer().render(data)).hexdigest()[:32]}"'


def _opaque(tag: str) -> str:
    """Return a tag without its weakness: for a GET both kinds are compared alike."""
    return tag.removeprefix("W/")
