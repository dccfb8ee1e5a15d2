"""Traces come to a collector over OTLP, from real processes, and hold no texts."""

from __future__ import annotations

import gzip
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from synth.models import RenderJob
from tests.workers.commands import run_python
from tests.workers.pairs import Pair, wait_for
from tests.workers.web import served


@dataclass
class Collector:
    """An OTLP/HTTP receiver: the bodies that came, and the spans in them by service."""

    url: str = ""
    bodies: list[bytes] = field(default_factory=list)

    def spans(self) -> list[tuple[str, Any]]:
        found = []
        for body in list(self.bodies):
            request = ExportTraceServiceRequest.FromString(body)
            for resource in request.resource_spans:
                about = attributes_of(resource.resource)
                for scope in resource.scope_spans:
                    found += [(str(about["service.name"]), span) for span in scope.spans]
        return found

    def named(self, name: str) -> list[tuple[str, Any]]:
        return [(service, span) for service, span in self.spans() if span.name == name]


def attributes_of(thing: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in thing.attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            zipped = self.headers.get("Content-Encoding") == "gzip"
            assert self.path == "/v1/traces"
            made.bodies.append(gzip.decompress(body) if zipped else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield made
        server.shutdown()


@pytest.mark.parametrize("pair", ["files"], indirect=True)
def test_a_request_and_its_job_are_traced_without_their_texts(
    pair: Pair, collector: Collector
) -> None:
    sent = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}
    pair.environment |= sent
    worker, voice = pair.start_with_voice()
    with served(pair) as client:
        body = {"text": "Unspeakable secret.", "voice": str(voice.pk)}
        voice.shared = True
        voice.save()
        asked = client.post("/api/v1/jobs", json=body)
        assert asked.status_code == 202, asked.text
        job_id = asked.json()["id"]
        client.get(f"/api/v1/jobs?custom_id=unspeakable&q={job_id}")
        job = RenderJob.objects.get(pk=job_id)
        wait_for(lambda: collector.named("job"), what="the job's span came")
        (requested,) = wait_for(
            lambda: collector.named("POST /api/v1/jobs"), what="the request's span came"
        )
    assert worker.stop() == 0

    service, span = requested
    assert service == "ttsweb-web"
    about = attributes_of(span)
    assert about["http.response.status_code"] == 202
    assert about["ttsweb.job_id"] == job_id
    ((service, whole),) = collector.named("job")
    assert service == "ttsweb-all-worker"
    assert whole.trace_id == uuid.UUID(job_id).bytes
    about = attributes_of(whole)
    job.refresh_from_db()
    assert about["ttsweb.status"] == job.status == "succeeded"
    assert about["ttsweb.segments_done"] == 1
    for name in ("wait", "render", "assemble"):
        ((_, step),) = collector.named(name)
        assert (step.trace_id, step.parent_span_id) == (whole.trace_id, whole.span_id)
        assert whole.start_time_unix_nano <= step.start_time_unix_nano
        assert step.start_time_unix_nano <= step.end_time_unix_nano <= whole.end_time_unix_nano
    everything = b"".join(collector.bodies).lower()
    assert b"unspeakable" not in everything
    assert b"tts_" not in everything  # no key
    assert b"custom_id" not in everything


START = """
import logging, sys
sys.modules.update(dict.fromkeys({absent}))
import django; django.setup()
from synth import telemetry
print(telemetry.start("ttsweb-web"))
"""


@pytest.mark.parametrize(
    ("absent", "endpoint", "said"),
    [
        (["opentelemetry.sdk"], "http://127.0.0.1:1", "./tts install otel"),
        ([], "", ""),
    ],
    ids=["without the packages", "without an endpoint"],
)
def test_without_packages_a_sentence_says_how_to_install_them(
    absent: list[str], endpoint: str, said: str, clean_env: dict[str, str]
) -> None:
    environment = clean_env | {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    code = START.format(absent=absent) + "\nsys.stdout.flush()"
    code = code.replace("import django; ", "sys.stderr = sys.stdout; import django; ")
    shown = run_python(environment, code)
    assert shown.splitlines()[-1] == "False"
    assert said in shown
    assert ("no traces are sent" in shown) == bool(said)
