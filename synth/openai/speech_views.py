"""Speak a text and answer with its audio, over the same queue as every other job."""

from __future__ import annotations

import uuid

from django.http import HttpResponseBase
from rest_framework.request import Request

from synth.accounts.access import visible_jobs
from synth.accounts.authentication import key_of
from synth.api.jobs.requests import read_idempotency_key
from synth.models import ApiKey
from synth.openai.base_view import OpenAIView
from synth.openai.models_view import check_model
from synth.openai.speech_answer import speech_answer
from synth.openai.speech_order import order_speech
from synth.openai.speech_request import SpeechSerializer, read_result_query, wants_live
from ttsweb.http.api import ApiProblem, check_query


class SpeechView(OpenAIView):
    """Speech that is waited for."""

    write_scopes = (ApiKey.Scope.JOBS,)

    def post(self, request: Request) -> HttpResponseBase:
        """Queue the text, or join the job of an equal request; answer with the audio."""
        check_query(request, ())
        idempotency_key = read_idempotency_key(request)
        serializer = SpeechSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        values = serializer.validated_data
        check_model(values["model"])
        is_live = wants_live(request, values)
        job = order_speech(
            values,
            owner=request.user,  # type: ignore[arg-type]  # permission: never anonymous
            api_key=key_of(request),
            idempotency_key=idempotency_key,
            is_live=is_live,
        )
        return speech_answer(
            request._request,
            job,
            stream_format=values["stream_format"],
            may_wait=True,
            is_live=is_live,
        )


class SpeechResultView(OpenAIView):
    """The speech of a job that was ordered above; SpeechWait asks here once the job has ended."""

    # It is the end of the answer to the POST above, which a key without `read` may send.
    read_scopes = (ApiKey.Scope.READ, ApiKey.Scope.JOBS)

    def get(self, request: Request, job_id: uuid.UUID) -> HttpResponseBase:
        """Answer with the audio; an unfinished job is not waited for here."""
        stream_format = read_result_query(request)
        job = visible_jobs(request.user).filter(pk=job_id).first()
        if job is None:
            raise ApiProblem(404, "job_not_found", "No job that you may see has this id.")
        return speech_answer(request._request, job, stream_format=stream_format)
