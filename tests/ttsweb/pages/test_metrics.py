"""GET /metrics: what it counts, who may see it, what it costs, and that its names follow the rules.

`tests/deploy/test_monitoring.py` holds dashboard and alert rules to it.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import shutil
import subprocess
from typing import Any

import pytest
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families
from rest_framework.test import APIClient

from synth.models import LiveChunk, RenderedDay, RenderJob, Segment, SweepTurn, WebhookDelivery
from synth.transitions.segments import count_rendered
from tests.factories import (
    claim,
    finish_segment,
    make_delivery,
    make_export,
    make_job,
    make_staff,
    make_take,
    make_user,
    make_voice,
    make_worker,
    stored,
)
from tests.synth.test_key_views import client_with
from voices.models import VoiceVersion
from voices.transitions import count

pytestmark = pytest.mark.django_db

# As Prometheus sends it.
ACCEPT = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
Labels = tuple[tuple[str, str], ...]


def fill() -> None:
    """Write rows of everything that is counted, so that no family is empty."""
    figures = {"slots": 4, "slots_in_use": 1, "frames_per_second": 10.5}
    figures |= {"memory_bytes": 1e9, "engine_bytes": 2e9}
    make_worker("gpu-1", figures=figures)
    make_worker("cpu-1", role="cpu", seconds_ago=3600)
    job = make_job(segments=4)
    for held in claim(2):
        finish_segment(held, make_take(size_bytes=10))
    claim(1)
    make_export(job, size_bytes=100)
    ended: dict[str, Any] = {
        "status": "failed",
        "finished_at": timezone.now(),
        "error_code": "voice_deleted",
    }
    make_job(segments=0, **ended)
    make_job(segments=2, priority=RenderJob.Priority.BULK)
    make_delivery()
    count("memory_hit", 3)
    SweepTurn.objects.create(name=SweepTurn.BACKUP, next_at=timezone.now() - dt.timedelta(hours=1))


def operator() -> APIClient:
    user = make_user("boss", is_superuser=True)
    return client_with(user, "read", "admin")


def scrape(client: APIClient) -> dict[str, dict[Labels, float]]:
    answer = client.get("/metrics", HTTP_ACCEPT=ACCEPT)
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/plain; version=0.0.4")
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(answer.content.decode()):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def value(found: dict[str, dict[Labels, float]], name: str, **labels: str) -> float:
    return found[f"ttsweb_{name}"][tuple(sorted(labels.items()))]


def test_figures_are_those_of_the_rows() -> None:
    fill()

    found = scrape(operator())

    segment = {"kind": "segment", "priority": "interactive"}
    assert value(found, "work_waiting", **segment) == 1
    assert value(found, "work_claimed", **segment) == 1
    assert value(found, "work_waiting", kind="segment", priority="bulk") == 2
    assert value(found, "work_waiting", kind="delivery", priority="") == 1
    assert value(found, "webhook_deliveries_waiting") == 1
    assert value(found, "jobs", status="running", priority="interactive") == 1
    assert value(found, "jobs", status="queued", priority="bulk") == 1
    assert value(found, "jobs_failed_last_hour", code="voice_deleted") == 1
    assert value(found, "takes_total", source="rendered") == 2
    assert value(found, "audio_seconds_total") == pytest.approx(1.86)
    assert value(found, "codes_lookups_total", result="memory_hit") == 3
    assert value(found, "workers", role="gpu", state="ready") == 1
    assert value(found, "workers", role="cpu", state="silent") == 1
    worker = {"worker": "gpu-1", "role": "gpu"}
    assert value(found, "worker_slots", **worker) == 4
    assert value(found, "worker_slots_in_use", **worker) == 1
    assert value(found, "worker_frames_per_second", **worker) == 10.5
    assert value(found, "worker_heartbeat_age_seconds", worker="cpu-1", role="cpu") >= 3600
    assert value(found, "storage_bytes", kind="takes") == 20
    assert value(found, "storage_bytes", kind="exports") == 100
    assert 3600 <= value(found, "backup_age_seconds") < 7200
    assert value(found, "database_answer_seconds") > 0


def test_what_waits_has_the_age_of_the_oldest_and_paused_jobs_do_not_count() -> None:
    ago = timezone.now() - dt.timedelta(minutes=5)
    for paused_at in (None, timezone.now()):
        job = make_job(segments=3, paused_at=paused_at)
        minutes = 5 if paused_at is None else 50
        made = timezone.now() - dt.timedelta(minutes=minutes)
        RenderJob.objects.filter(pk=job.pk).update(created_at=made)
    make_voice(ready=False)
    VoiceVersion.objects.filter(status="pending").update(not_before=ago)
    later = timezone.now() + dt.timedelta(minutes=5)
    WebhookDelivery.objects.filter(pk=make_delivery().pk).update(not_before=later)

    found = scrape(operator())

    segment = {"kind": "segment", "priority": "interactive"}
    assert value(found, "work_waiting", **segment) == 3
    assert 300 <= value(found, "work_oldest_wait_seconds", **segment) < 900
    assert value(found, "work_waiting", kind="version", priority="") == 1
    assert 300 <= value(found, "work_oldest_wait_seconds", kind="version", priority="") < 900
    assert value(found, "work_waiting", kind="delivery", priority="") == 0  # not yet
    assert value(found, "webhook_deliveries_waiting") == 1


def test_first_audio_is_a_live_piece_or_the_first_finished_segment() -> None:
    now = timezone.now()
    for number, seconds in enumerate((2, 4, 6, 8)):
        job = make_job(segments=2)
        begun = now - dt.timedelta(seconds=60)
        RenderJob.objects.filter(pk=job.pk).update(created_at=begun, started_at=begun)
        for place, segment in enumerate(job.segments.order_by("index")):
            make_take([segment])
            at = begun + dt.timedelta(seconds=seconds + 10 * place)
            Segment.objects.filter(pk=segment.pk).update(status="done", finished_at=at)
            if number == 3 and not place:
                piece = {"key": "", "num_samples": 1, "sample_rate": 44100, "index": 0}
                chunk = LiveChunk.objects.create(segment=segment, attempt=job.pk, **piece)
                heard = begun + dt.timedelta(seconds=1)
                LiveChunk.objects.filter(pk=chunk.pk).update(created_at=heard)

    found = scrape(operator())

    first = {"priority": "interactive"}
    assert value(found, "first_audio_jobs", **first) == 4
    assert value(found, "first_audio_seconds", percentile="50", **first) == pytest.approx(
        3, abs=0.1
    )
    assert value(found, "first_audio_seconds", percentile="99", **first) == pytest.approx(
        6, abs=0.2
    )


def test_counters_stay_when_what_they_counted_is_deleted() -> None:
    fill()
    RenderedDay.objects.create(day=dt.date(2026, 1, 1), segments=7, reused=3, audio_seconds=5.0)
    client = operator()
    before = scrape(client)
    assert value(before, "takes_total", source="reused") == 3

    RenderJob.objects.all().delete()
    count_rendered([(make_take(), True)], segments=1)
    after = scrape(client)

    counters = [name for name in before if name.endswith("_total")]
    assert len(counters) >= 3
    for name in counters:
        assert all(after[name][labels] >= number for labels, number in before[name].items())
    assert value(after, "takes_total", source="reused") == 4
    assert value(after, "jobs", status="queued", priority="bulk") == 0


def test_real_time_factor_is_told_where_enough_was_rendered_and_is_no_number_else() -> None:
    client = operator()
    assert math.isnan(value(scrape(client), "real_time_factor_ratio"))
    job = make_job(segments=30)
    begun = timezone.now() - dt.timedelta(seconds=60)
    RenderJob.objects.filter(pk=job.pk).update(started_at=begun)
    for place, segment in enumerate(job.segments.order_by("index")):
        segment.spoken_text = "x" * 20
        segment.take = make_take(audio_seconds=2.0)
        segment.status, segment.finished_at = "done", begun + dt.timedelta(seconds=place + 1)
        segment.save()
    from synth.jobs.eta import forget_pace

    forget_pace()
    # A segment a second, of two seconds each.
    assert value(scrape(client), "real_time_factor_ratio") == pytest.approx(2.0, rel=0.1)


def test_who_may_not_see_the_installation_is_told_so() -> None:
    anonymous = APIClient().get("/metrics")
    assert (anonymous.status_code, anonymous.json()["code"]) == (401, "not_authenticated")
    assert "API key" in anonymous.json()["detail"]
    boss = make_user("boss", is_superuser=True)
    refused = client_with(boss, "read").get("/metrics")
    assert (refused.status_code, refused.json()["code"]) == (403, "permission_denied")
    assert "scope `admin`" in refused.json()["detail"]
    assert client_with(make_user("eve"), "read", "admin").get("/metrics").status_code == 403
    assert APIClient(HTTP_AUTHORIZATION="Bearer tts_wrong").get("/metrics").status_code == 401
    clerk = make_staff("view_workerstatus", username="clerk")
    assert client_with(clerk, "read", "admin").get("/metrics").status_code == 200
    assert client_with(clerk, "read", "admin").get("/metrics?days=3").status_code == 400


def test_no_text_name_or_secret_is_among_the_figures() -> None:
    job = make_job(segments=2, text="A secret sentence.")
    make_delivery(job=job, url="https://hooks.example/secret")
    fill()
    body = operator().get("/metrics").content.decode()
    assert "secret" not in body
    assert "boss" not in body


def test_queries_are_as_many_however_much_there_is(
    django_assert_max_num_queries: Any, django_assert_num_queries: Any
) -> None:
    client = operator()
    client.get("/metrics")  # the key's last use is noted once
    with django_assert_max_num_queries(34) as few:
        client.get("/metrics")
    for _ in range(5):
        make_export(make_job(segments=9), size_bytes=5)
    make_worker("a")
    make_worker("b")
    with django_assert_num_queries(len(few.captured_queries)):
        client.get("/metrics")


RESERVED = ("_count", "_sum", "_bucket", "_info_total", "_gauge", "_counter")
UNITS = re.compile(r"(milli|micro|kilo|mega|giga|minute|hour|day|percent)(?!ile)")


def test_names_follow_prometheus_rules() -> None:
    fill()
    families = list(text_string_to_metric_families(operator().get("/metrics").content.decode()))
    assert len(families) >= 25
    for family in families:
        name = family.name
        assert re.fullmatch(r"ttsweb_[a-z][a-z_]*[a-z]", name), name
        assert family.documentation.endswith("."), name
        assert family.type in ("gauge", "counter"), name
        assert not name.endswith(RESERVED), name
        assert not UNITS.search(name.removesuffix("_last_hour")), name
        for sample in family.samples:
            assert sample.name == name + ("_total" if family.type == "counter" else "")
            assert not {"le", "quantile"} & set(sample.labels)
            assert all(re.fullmatch("[a-z_]+", label) for label in sample.labels)
            assert math.isnan(sample.value) or sample.value >= 0
        assert len({tuple(sorted(one.labels)) for one in family.samples}) <= 1, name


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool was found")
def test_promtool_finds_nothing_to_say() -> None:
    fill()
    body = operator().get("/metrics").content
    run = subprocess.run(["promtool", "check", "metrics"], input=body, capture_output=True)
    assert (run.returncode, run.stdout + run.stderr) == (0, b"")


def test_an_expired_claim_is_told() -> None:
    make_job()
    (held,) = claim(1)
    past = timezone.now() - dt.timedelta(minutes=5)
    Segment.objects.filter(pk=held.pk).update(lease_until=past)
    assert stored(Segment.objects.get(), "status") == ("claimed",)
    assert value(scrape(operator()), "work_claims_expired") == 1
