"""Times and waveforms are served of finished files alone, to those whose they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from rest_framework.test import APIClient

from synth.models import ExportCues, JobVoice, RenderJob
from tests.factories import make_ended_job, make_segment, make_user, make_voice

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("storage_folder")]


@pytest.fixture
def job() -> RenderJob:
    """A finished job of two segments, by two voices, with its cues."""
    voice = make_voice("Ada")
    job = make_ended_job(make_user(), voice=voice)
    second = make_segment(job, text="Is 1 < 2 & 3?", status="done", speaker=1)
    JobVoice.objects.create(job=job, speaker=1, version=make_voice("Bob").versions.get())
    export = job.exports.get()
    export.duration_seconds, export.peaks = 2.0, [0, 255, 3]
    export.save()
    first = job.segments.get(index=0)
    cues = [[first.pk, 0, 8000], [second.pk, 12_000, 15_999]]
    ExportCues.objects.update(sample_rate=8000, cues=cues)
    return job


def client_of(job: RenderJob) -> APIClient:
    """Return a client of the job's owner."""
    client = APIClient()
    client.force_authenticate(job.owner)
    return client


@pytest.fixture
def client(job: RenderJob) -> APIClient:
    return client_of(job)


def test_json_has_each_segment_with_its_times_text_and_voice(
    client: APIClient, job: RenderJob
) -> None:
    answer = client.get(f"/api/v1/jobs/{job.pk}/timestamps")

    assert answer.status_code == 200
    shown = answer.json()
    assert (shown["seconds"], shown["sample_rate"]) == (2.0, 8000)
    assert shown["segments"][1] == {
        "chapter": 0, "index": 1, "start": 1.5, "end": 15_999 / 8000, "start_sample": 12_000,
        "end_sample": 15_999, "text": "Is 1 < 2 & 3?", "speaker": 1, "voice": "Bob",
    }  # fmt: skip
    assert shown["segments"][0]["voice"] == "Ada"


@pytest.mark.parametrize(
    ("form", "content_type", "first"),
    [
        ("srt", "application/x-subrip; charset=utf-8", "1\n00:00:00,000 --> 00:00:01,000\n"),
        ("vtt", "text/vtt; charset=utf-8", "WEBVTT\n\n1\n00:00:00.000 --> 00:00:01.000\n"),
    ],
)
def test_subtitles_are_files_of_their_type(
    client: APIClient, job: RenderJob, form: str, content_type: str, first: str
) -> None:
    answer = client.get(f"/api/v1/jobs/{job.pk}/timestamps?format={form}")

    assert answer["Content-Type"] == content_type
    assert answer["Content-Disposition"].endswith(f'.{form}"')
    assert answer.content.decode().startswith(first)


def test_waveform_has_seconds_and_peaks_and_what_has_not_changed_is_not_sent_again(
    client: APIClient, job: RenderJob
) -> None:
    for path in ("timestamps", "timestamps?format=srt", "waveform"):
        address = f"/api/v1/jobs/{job.pk}/{path}"
        answer = client.get(address)
        again = client.get(address, headers={"If-None-Match": answer["ETag"]})
        assert (again.status_code, again.content) == (304, b""), path
    assert answer.json() == {"seconds": 2.0, "peaks": [0, 255, 3]}


@pytest.mark.parametrize(
    ("status", "answer", "code"),
    [
        ("queued", 409, "job_not_finished"),
        ("running", 409, "job_not_finished"),
        ("failed", 404, "job_without_audio"),
        ("cancelled", 404, "job_without_audio"),
        ("succeeded", 404, "not_kept"),  # by an earlier version
    ],
)
def test_job_without_a_file_or_what_was_measured_of_it_says_why(
    status: str, answer: int, code: str
) -> None:
    job = make_ended_job(make_user(), status)
    ExportCues.objects.all().delete()
    job.exports.update(peaks=[])

    for path in ("timestamps", "waveform"):
        found = client_of(job).get(f"/api/v1/jobs/{job.pk}/{path}")
        assert (found.status_code, found.json()["code"]) == (answer, code)
        assert ("Retry-After" in found) == (answer == 409)


def test_unknown_form_is_refused(client: APIClient, job: RenderJob) -> None:
    for query in ("format=ass", "format=", "format=%00", "form=srt", "format=SRT"):
        assert client.get(f"/api/v1/jobs/{job.pk}/timestamps?{query}").status_code == 400, query


def test_job_shows_what_was_measured_of_its_file_and_takes_the_times_along(
    client: APIClient, job: RenderJob, storage_folder: Path
) -> None:
    path = f"/api/v1/jobs/{job.pk}"
    assert client.get(path).json()["file"] is None
    report = {"seconds": 2.0, "loudness_lufs": -16.02, "target_reached": True}
    job.exports.update(report=report)
    RenderJob.objects.update(takes_rendered=3, takes_reused=2, audio_seconds=8.0)
    shown = client.get(path).json()
    assert (shown["file"], shown["takes_rendered"], shown["takes_reused"]) == (report, 3, 2)
    assert (shown["eta_seconds"], shown["real_time_factor"]) == (None, None)
    client.delete(path)
    assert not ExportCues.objects.exists()
