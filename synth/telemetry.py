"""Send traces to an OpenTelemetry collector, where OTEL_EXPORTER_OTLP_ENDPOINT names one.

A request is a span, sent by the web process. A job is a trace whose id is the job's: `job`, and in
it `wait`, `render` and `assemble`, sent by the process that ends the job, from its row. Attributes
are ids, counts, names of routes and codes; never texts, addresses with queries, or headers. The
variables are OpenTelemetry's own; the packages are those of the extra `otel`.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import re
import uuid
from collections.abc import Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, ClassVar

from django.core.exceptions import MiddlewareNotUsed
from django.db import transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from synth.models import Export, RenderJob
from synth.signals import jobs_ended

logger = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_JOB = re.compile(r"/jobs/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:/|$)")


class _Tracing:
    """What this process sends traces by; nothing where tracing is off."""

    provider: ClassVar[Any] = None


_next_trace: ContextVar[int] = ContextVar("next_trace", default=0)  # its id; 0 is a random one


def start(service: str) -> bool:
    """Begin to send this process's spans; return False where no endpoint is set.

    Where the packages are missing, a line in the log says how to install them: speech goes on.
    """
    if _Tracing.provider is not None or not any(map(os.environ.get, _ENDPOINTS)):
        return _Tracing.provider is not None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
    except ImportError:
        logger.error(
            "no traces are sent: OTEL_EXPORTER_OTLP_ENDPOINT is set, and OpenTelemetry's packages "
            "are not installed; run ./tts install otel, or unset the variable"
        )
        return False
    if os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf") != "http/protobuf":
        logger.warning("traces are sent as http/protobuf, whatever OTEL_EXPORTER_OTLP_PROTOCOL is")

    class Ids(RandomIdGenerator):
        def generate_trace_id(self) -> int:
            return _next_trace.get() or super().generate_trace_id()

    named = {} if "OTEL_SERVICE_NAME" in os.environ else {SERVICE_NAME: service}
    provider = TracerProvider(resource=Resource.create(named), id_generator=Ids())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    _Tracing.provider = provider
    jobs_ended.connect(trace_jobs)
    logger.info("traces are sent to the endpoint of OTEL_EXPORTER_OTLP_ENDPOINT")
    return True


def stop() -> None:
    """Send what is left; later spans go nowhere."""
    if _Tracing.provider is not None:
        jobs_ended.disconnect(trace_jobs)
        _Tracing.provider.shutdown()
        _Tracing.provider = None


def _tracer() -> Any:
    return _Tracing.provider.get_tracer("ttsweb")


class TraceMiddleware(MiddlewareMixin):
    """Make a span of each request, named by its route, with the job that it is about."""

    def __init__(self, get_response: Any) -> None:
        if _Tracing.provider is None:
            raise MiddlewareNotUsed
        super().__init__(get_response)

    def process_request(self, request: HttpRequest) -> None:
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier = {name: request.headers.get(name, "") for name in ("traceparent", "tracestate")}
        caller = TraceContextTextMapPropagator().extract(carrier)
        method = request.method if request.method in _METHODS else "_OTHER"
        span = _tracer().start_span(str(method), context=caller, kind=SpanKind.SERVER)
        span.set_attribute("http.request.method", str(method))
        request.META[_SPAN] = span

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        from opentelemetry.trace import StatusCode

        span = request.META.pop(_SPAN, None)
        if span is None:
            return response
        match = request.resolver_match
        if match is not None and match.route:
            span.update_name(f"{request.method} /{match.route}")
            span.set_attribute("http.route", f"/{match.route}")
        status = getattr(request, "noted_status", response.status_code)  # see `speech_wait`
        span.set_attribute("http.response.status_code", status)
        found = _JOB.search(response.get("Location", "")) or _JOB.search(request.path)
        if job_id := found[1] if found else getattr(request, "noted_job", ""):
            span.set_attribute("ttsweb.job_id", str(job_id))
        if status >= 500:
            span.set_status(StatusCode.ERROR)
        span.end()
        return response


_SPAN = "ttsweb.telemetry.span"
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_COUNTS = (
    "segments_total", "segments_done", "segments_failed", "takes_rendered", "takes_reused",
    "audio_seconds",
)  # fmt: skip


def trace_jobs(jobs: Sequence[RenderJob], **_: Any) -> None:
    """Send the spans of jobs once their end has committed."""
    transaction.on_commit(partial(_send_jobs, [job.pk for job in jobs]), robust=True)


def _send_jobs(job_ids: Sequence[uuid.UUID]) -> None:
    rows = RenderJob.objects.defer("text", "error_message").filter(pk__in=job_ids)
    files = Export.objects.filter(job__in=job_ids).order_by("created_at")
    ordered = dict(reversed(files.values_list("job", "created_at")))
    for job in rows:
        _send_job(job, ordered.get(job.pk))


def _send_job(job: RenderJob, rendered_at: dt.datetime | None) -> None:
    """Send a job's spans; `rendered_at` is when its first file was ordered, after all takes."""
    from opentelemetry.context import Context
    from opentelemetry.trace import StatusCode, set_span_in_context

    ended = job.finished_at
    if ended is None:  # begun again meanwhile
        return
    about = {"ttsweb.job_id": str(job.pk), "ttsweb.kind": job.kind}
    tracer = _tracer()
    token = _next_trace.set(job.pk.int)
    begins = _nanoseconds(job.created_at)
    whole = tracer.start_span("job", context=Context(), start_time=begins, attributes=about)
    _next_trace.reset(token)
    whole.set_attribute("ttsweb.status", job.status)
    for name in _COUNTS:
        whole.set_attribute(f"ttsweb.{name}", getattr(job, name))
    if job.error_code:
        whole.set_attribute("error.type", job.error_code)
        whole.set_status(StatusCode.ERROR)
    inside = set_span_in_context(whole)
    begun = job.started_at
    steps = [("wait", job.created_at, begun or ended)]
    if begun is not None:
        steps.append(("render", begun, rendered_at or ended))
        steps += [("assemble", rendered_at, ended)] if rendered_at is not None else []
    for name, first, last in steps:
        span = tracer.start_span(
            name, context=inside, start_time=_nanoseconds(first), attributes=about
        )
        span.end(_nanoseconds(max(first, last)))
    whole.end(_nanoseconds(ended))


def _nanoseconds(moment: dt.datetime) -> int:
    return int(moment.timestamp() * 1e9)
