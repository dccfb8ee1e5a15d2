"""The whole life of voices and jobs in a bucket, and what a server that is away does to them."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterator
from functools import partial

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db.models import QuerySet
from pytest_django import Settings

from lab.faulty_proxy import FaultyProxy
from lab.s3_server import S3Server
from synth.models import Export, RenderJob, Segment, Take
from tests.conftest import use_storage
from tests.workers.clips import wav_bytes
from tests.workers.pairs import Pair, assert_whole, submit, wait_ended, wait_for
from tests.workers.web import served
from ttsweb import leases
from workers import objects

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.django_db(transaction=True),
    pytest.mark.parametrize("pair", ["files"], indirect=True),
]


@pytest.fixture
def proxy(
    pair: Pair, s3: S3Server, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FaultyProxy]:
    """What stands between the pair's processes and their bucket `life`; this process sees both."""
    proxy = FaultyProxy(s3.endpoint)
    name = s3.make_bucket(f"life-{pair.data_dir.parent.name.replace('_', '-')}"[:60].strip("-"))
    use_storage(settings, monkeypatch, s3, s3.storage_url(name, "tts"))
    pair.environment |= s3.environment
    pair.environment["TTS_STORAGE"] = s3.storage_url(name, "tts", endpoint=proxy.url)
    yield proxy
    proxy.close()


def assert_nothing_twice(*jobs: RenderJob) -> None:
    """Assert that what the bucket holds of takes and files is what rows name, and whole."""
    assert_whole(*jobs)
    for job in jobs:
        assert job.takes_rendered == job.segments_total, "a segment was rendered again"
        assert set(job.segments.values_list("attempts", flat=True)) == {1}
        assert list(job.exports.values_list("attempts", flat=True)) == [1]
    takes = {key for row in Take.objects.values_list("audio_key", "codes_key") for key in row}
    assert set(default_storage.list_keys("takes/")) == takes  # type: ignore[attr-defined]
    exports = dict(Export.objects.values_list("key", "sha256"))
    assert set(default_storage.list_keys("exports/")) == set(exports)  # type: ignore[attr-defined]
    for key, digest in exports.items():
        with default_storage.open(key) as file:
            assert hashlib.sha256(file.read()).hexdigest() == digest


def test_voices_and_jobs_live_in_a_bucket_alone(pair: Pair, proxy: FaultyProxy) -> None:
    pair.start_worker("one").wait_ready()
    with served(pair) as client:
        fields = {"name": "Ada", "consent_statement": "The speaker agreed.", "transcript": "A ox."}
        clip = {"audio": ("a.wav", wav_bytes(seconds=1.5), "audio/wav")}
        made = client.post("/api/v1/voices", data=fields, files=clip)
        assert made.status_code in (201, 202), made.text
        order = {"text": "Ox one.\n\nOx two.", "voice": "Ada", "format": "flac"}
        wait_for(
            lambda: client.get(f"/api/v1/voices/{made.json()['id']}").json()["status"] == "ready",
            what="the voice is encoded",
        )
        heard = client.post(
            "/api/v1/jobs", json=order | {"text": "Ox three.", "priority": "interactive"}
        )
        live = client.get(f"/api/v1/jobs/{heard.json()['id']}/audio?live=1&format=pcm")
        assert live.status_code == 200 and len(live.content) > 1000, live.text[:300]
        asked = client.post("/api/v1/jobs", json=order)
        assert asked.status_code == 202, asked.text
        job, other = (RenderJob.objects.get(pk=one.json()["id"]) for one in (asked, heard))
        wait_ended(job, other)
        assert_nothing_twice(job, other)
        export = job.exports.get()
        with default_storage.open(export.key) as file:
            content = file.read()
        path = f"/api/v1/jobs/{job.pk}/audio"
        assert client.get(path).content == content
        part = client.get(path, headers={"Range": "bytes=10-99"})
        assert (part.status_code, part.content) == (206, content[10:100])
        with proxy.failing("refuse"):
            away = client.get(path)
            assert (away.status_code, away.json()["code"]) == (503, "storage_unavailable")
            ready = client.get("/readyz").json()["parts"]["storage"]
            assert ready == {
                "ok": False,
                "detail": "The S3 storage does not answer (ConnectionClosed).",
            }
        for one in (job, other):
            assert client.delete(f"/api/v1/jobs/{one.pk}").status_code in (202, 204)
    gone = default_storage.list_keys("exports/")  # type: ignore[attr-defined]
    assert (list(gone), Take.objects.count()) == ([], 0)
    assert not (pair.data_dir / "storage").exists(), "something was written to the folder"

    lost = f"takes/5a/{'5a' * 32}/{'7' * 32}.flac"
    default_storage.save(lost, ContentFile(b"lost"))
    later = leases.database_now() + dt.timedelta(days=2)
    assert list(objects.find_orphans(objects.Shard("takes/5a", ""), now=later)) == [lost]
    assert list(objects.find_orphans(objects.Shard("takes/5a", ""))) == []


def _is_begun(waiting: QuerySet[Segment]) -> bool:
    return waiting.count() < 4


def test_work_waits_for_a_bucket_that_is_away_and_is_published_once(
    pair: Pair, proxy: FaultyProxy
) -> None:
    worker, voice = pair.start_with_voice("one")
    jobs = []
    for number, fault in enumerate(("refuse", "busy", "hang", "slow")):
        job = submit(voice, sentences=4, first=10 * number, format="flac")
        open_segments = Segment.objects.filter(job=job, status="queued")
        wait_for(partial(_is_begun, open_segments), what="a segment is claimed")
        with proxy.failing(fault):
            wait_for(lambda: proxy.num_faults >= 3, what=f"the worker has met: {fault}")
            jobs.append(job)
            if fault != "slow":
                job.refresh_from_db()
                assert job.status not in RenderJob.FINAL
            else:
                wait_ended(job)
        wait_ended(job)
    assert worker.popen.poll() is None, worker.log
    assert_nothing_twice(*jobs)
