"""A batch's zip holds the file of every item that has one, and says what became of the others."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import default_storage
from django.utils import timezone

from synth.api.batches.entries import entries_of_list
from synth.api.batches.texts import BatchOptions, submit_batch
from synth.jobs.submit import Sender
from synth.models import Batch, Export, RenderJob, Segment
from synth.transitions.batches import cancel_batch, retry_batch, settle_stalled_batches
from synth.transitions.claims import claim_segments
from synth.transitions.segments import fail_segment
from tests.factories import CODEC_FINGERPRINT, finish_segment, make_batch, make_voice
from tests.workers.conftest import MiniatureProcess
from tests.workers.pairs import Pair, wait_for
from tests.workers.test_assemble import take_of
from workers.assemble import zip_batch
from workers.process.claiming import take_exports

pytestmark = pytest.mark.django_db(transaction=True)


def make(items: list[dict[str, Any]], *, skip_bad: bool = False, voice: str = "") -> Batch:
    name = voice or make_voice().name
    entries = entries_of_list(items, max_items=1000)
    options = BatchOptions(defaults={"voice": name, "format": "wav"})
    return submit_batch(entries, options, Sender(None), skip_bad=skip_bad)[0]


def render(*, bad: str = "") -> None:
    """Render what is queued; what has the text `bad` fails."""
    for claim in claim_segments(worker="gpu", limit=100, codec_fingerprint=CODEC_FINGERPRINT):
        if Segment.objects.get(pk=claim.pk).text == bad:
            fail_segment(claim, code="bad", message="It is bad.")
        else:
            finish_segment(claim, take_of(claim.pk % 7 / 10))


def make_files(process: MiniatureProcess) -> None:
    """Do all the work of a CPU worker that there is."""
    while take_exports(process):
        process.run_all()


def zip_of(batch: Batch) -> zipfile.ZipFile:
    batch.refresh_from_db()
    export = Export.objects.get(batch=batch)
    return zipfile.ZipFile(io.BytesIO(Path(default_storage.path(export.key)).read_bytes()))


def test_zip_has_every_file_by_its_name_and_a_manifest(process: MiniatureProcess) -> None:
    ids = {"a/b": {"text": "One.", "format": "flac"}, "A_b": {"text": "Two."}}
    ids["=cmd"] = {"text": "Three."}
    items = [{"custom_id": custom_id, **item} for custom_id, item in ids.items()]
    batch = make([*items, {"text": ""}], skip_bad=True)
    render(bad="Three.")
    make_files(process)

    archive = zip_of(batch)
    assert batch.status == RenderJob.Status.PARTIAL
    assert archive.testzip() is None
    assert archive.namelist() == ["a_b.flac", "A_b.wav", "manifest.json", "manifest.csv"]
    answer = json.loads(archive.read("manifest.json"))["items"]
    assert [(item["custom_id"], item["status"], item["file"]) for item in answer] == [
        ("a/b", "succeeded", "a_b.flac"), ("A_b", "succeeded", "A_b.wav"),
        ("=cmd", "failed", None), ("item-00004", "failed", None),
    ]  # fmt: skip
    assert answer[2]["error"] == {"code": "bad", "message": "It is bad."}
    for item in answer[:2]:
        content = archive.read(item["file"])
        digest = hashlib.sha256(content).hexdigest()
        assert (item["sha256"], item["bytes"]) == (digest, len(content))
    rows = list(csv.DictReader(io.StringIO(archive.read("manifest.csv").decode())))
    assert [row["custom_id"] for row in rows] == ["a/b", "A_b", "'=cmd", "item-00004"]
    assert rows[3]["error_code"] == "text_empty"
    assert Export.objects.get(batch=batch).duration_seconds == pytest.approx(
        sum(item["seconds"] for item in answer), abs=0.01
    )


def test_zip_of_a_batch_without_items_has_manifests_without_rows(tmp_path: Path) -> None:
    batch = make_batch(items=0)

    made = zip_batch(tmp_path / "batch.zip", batch, is_unwanted=lambda: False)

    with zipfile.ZipFile(tmp_path / "batch.zip") as archive:
        assert archive.namelist() == ["manifest.json", "manifest.csv"]
        assert json.loads(archive.read("manifest.json"))["items"] == []
        assert archive.read("manifest.csv").decode() == (
            "custom_id,job,status,file,seconds,bytes,sha256,error_code,error_message\r\n"
        )
    assert made.duration_seconds == 0


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_lost_file_of_an_item_is_made_anew_first(process: MiniatureProcess, damage: str) -> None:
    batch = make([{"text": "One."}, {"text": "Two."}])
    render()
    assert take_exports(process) == 2
    process.run_all()
    path = Path(default_storage.path(Export.objects.filter(format="wav").first().key))  # type: ignore[union-attr]
    path.unlink() if damage == "missing" else path.write_bytes(b"RIFF")
    make_files(process)
    archive = zip_of(batch)
    assert batch.status == RenderJob.Status.SUCCEEDED
    answer = json.loads(archive.read("manifest.json"))["items"]
    for item in answer:
        assert hashlib.sha256(archive.read(item["file"])).hexdigest() == item["sha256"]
    assert Segment.objects.filter(status="done").count() == 2


def test_names_differ_on_systems_that_do_not_tell_case_apart(process: MiniatureProcess) -> None:
    names = ["x", "X", "x-00002", "CON", "...", "ä", "a\u0308"]
    batch = make([{"custom_id": name, "text": "One."} for name in names])
    render()
    make_files(process)
    files = zip_of(batch).namelist()[:-2]
    assert len({name.casefold() for name in files}) == len(names)
    assert not [name for name in files if name.startswith(".") or name.casefold() == "con.wav"]


def test_batch_cancelled_while_its_zip_is_made_gets_none(process: MiniatureProcess) -> None:
    batch = make([{"text": "One."}])
    render()
    assert take_exports(process) == 1
    process.run_all()
    assert take_exports(process) == 1
    cancel_batch(batch.pk)
    process.run_all()
    batch.refresh_from_db()
    assert batch.status == RenderJob.Status.CANCELLED
    assert not Export.objects.filter(batch=batch).exists()
    retry_batch(batch.pk)
    make_files(process)
    batch.refresh_from_db()
    assert batch.status == RenderJob.Status.SUCCEEDED


def test_sweep_finds_a_batch_whose_last_count_was_lost(
    process: MiniatureProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = make([{"text": "One."}])
    render()
    # A process that dies between its commit and the count leaves this.
    with monkeypatch.context() as patch:
        patch.setattr("synth.transitions.batches.settle_batch", lambda batch_id: None)
        assert take_exports(process) == 1
        process.run_all()
    assert not Export.objects.filter(batch=batch).exists()
    assert [settle_stalled_batches() for _ in range(2)] == [1, 0]
    make_files(process)
    batch.refresh_from_db()
    assert batch.status == RenderJob.Status.SUCCEEDED


def test_sweep_goes_on_with_a_cancel_that_was_broken_off() -> None:
    batch = make([{"text": "One."}, {"text": "Two."}])
    Batch.objects.filter(pk=batch.pk).update(cancelled_at=timezone.now())
    settle_stalled_batches()
    batch.refresh_from_db()
    assert batch.status == RenderJob.Status.CANCELLED
    assert set(batch.items.values_list("status", flat=True)) == {"cancelled"}


@pytest.mark.thorough
def test_worker_killed_in_the_middle_of_a_batch_costs_nothing_but_time(pair: Pair) -> None:
    first, voice = pair.start_with_voice("w1")
    items = [{"custom_id": f"c{number}", "text": f"Ox {number}."} for number in range(6)]
    batch = make([*items, {"text": ""}], skip_bad=True, voice=voice.name)
    held = Segment.objects.filter(status=Segment.Status.CLAIMED)
    wait_for(held.exists, what="the worker renders", poll=0.005)

    first.kill()
    pair.lose_messages()
    pair.start_worker("w2")
    ended = Batch.objects.filter(pk=batch.pk, ended_at__isnull=False)
    wait_for(ended.exists, what="the batch ended", seconds=150)

    batch.refresh_from_db()
    assert batch.status == RenderJob.Status.PARTIAL
    assert (batch.items_ended, batch.items_total) == (7, 7)
    export = Export.objects.get(batch=batch)
    with zipfile.ZipFile(pair.data_dir / "storage" / export.key) as archive:
        assert archive.testzip() is None
        assert archive.namelist()[:-2] == [f"c{number}.wav" for number in range(6)]
