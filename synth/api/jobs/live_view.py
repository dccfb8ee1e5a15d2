"""Decide in Django who may listen to a job that is being rendered, and to what."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse, HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request

from synth.formats import LIVE_FORMATS
from synth.live.streams import LIVE_HEADER, live_headers
from synth.models import RenderJob
from synth.transitions.files import request_live
from ttsweb.http.api import ApiProblem, StrictSerializer, check_query

_YES, _NO = ("1", "true"), ("0", "false")


class LiveQuerySerializer(StrictSerializer):
    """Whether a job's audio is wanted while it is rendered, and how."""

    live = serializers.ChoiceField(
        choices=(*_YES, *_NO),
        required=False,
        help_text=(
            "`1`: send the audio while it is rendered, from the beginning of the text. A job "
            "that has ended sends its file, unless `format` is given too."
        ),
    )
    format = serializers.ChoiceField(
        choices=LIVE_FORMATS,
        required=False,
        help_text=(
            "Only with `live=1`: a WAV file of unknown length (default), or raw samples: s16le, "
            "mono, with the sample rate in the header TTS-Sample-Rate."
        ),
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Replace the choices by a bool, and refuse a format of what is not live."""
        is_live = attrs.get("live") in _YES
        if "format" in attrs and not is_live:
            raise serializers.ValidationError(
                {
                    "format": [
                        "`format` works only with `live=1`; send both, or leave `format` out."
                    ]
                },
                code="live_required",
            )
        return {"is_live": is_live, "format": attrs.get("format")}


def live_answer(request: Request, job: RenderJob) -> HttpResponseBase | None:
    """Return None where the job's file is wanted, as also of a job that has ended.

    Anything else is an answer without a body, whose header tells LiveStreams to go on with it.

    Raises:
        ValidationError: the query is none that is acted on.
        ApiProblem: 409 live_not_possible.
    """
    check_query(request, ("live", "format"))
    query = LiveQuerySerializer(data=request.query_params.dict())
    query.is_valid(raise_exception=True)
    form: str | None = query.validated_data["format"]
    if not query.validated_data["is_live"] or (job.status in job.FINAL and form is None):
        return None
    if job.status in job.FINAL and not job.segments_done:
        return None  # there is none, and the file's answer says why
    _check_possible(job)
    chosen = form or LIVE_FORMATS[0]
    answer = HttpResponse(headers=live_headers(chosen, job.pk))
    if request.method != "HEAD":
        request_live(job.pk)
        answer[LIVE_HEADER] = chosen
    return answer


def _check_possible(job: RenderJob) -> None:
    """Refuse what a listener would get otherwise than it was ordered."""
    if job.speed != 1.0:
        raise ApiProblem(
            409,
            "live_not_possible",
            f"This job has the speed {job.speed:g}, which changes only the finished file. "
            "Fetch that file, or submit the text with speed 1 to listen while it is "
            "rendered.",
        )
