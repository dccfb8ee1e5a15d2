"""Objects that no row names go after a time; what may still get one, or is not ours, stays."""

from __future__ import annotations

import datetime as dt
import io
import json
import uuid
from pathlib import Path

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.management import call_command
from pytest_django import Settings

from synth.models import BookFile, Export, SweepTurn, Take
from tests.factories import make_book, make_ended_job, make_stored_clip, make_take
from ttsweb import leases
from workers import objects, sweep

pytestmark = pytest.mark.django_db(transaction=True)

DIGEST = "5a" * 32
HEX = uuid.UUID(int=7).hex
# As they are written by uploads, imports, encodings, renderings and the making of files.
KEYS = [
    f"books/{uuid.UUID(int=7)}/{HEX}.upload",
    f"clips/{DIGEST}/{HEX}.wav",
    f"codes/{DIGEST}/0123456789abcdef-{HEX}.safetensors",
    f"exports/{DIGEST}/{HEX}.m4b",
    f"takes/{DIGEST[:2]}/{DIGEST}/{HEX}.flac",
]
ALL = objects.all_shards()


@pytest.fixture(autouse=True)
def few_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Walk only the parts in which the tests' objects are: one commit for each of all is slow."""
    places = {("books", "0"), ("clips", "5"), ("codes", "5"), ("exports", "0"), ("exports", "5")}
    some = [one for one in ALL if (one.folder, one.start) in places or one.folder == "takes/5a"]
    monkeypatch.setattr(objects, "all_shards", lambda: some)


def store(key: str) -> Path:
    return Path(default_storage.path(default_storage.save(key, ContentFile(b"bytes"))))


def later(**time: float) -> dt.datetime:
    return leases.database_now() + dt.timedelta(**time)


def deleted(**time: float) -> int:
    """Return how many objects a walk removes after this time."""
    return objects.delete_orphans(within_seconds=60, now=later(**time))


@pytest.mark.parametrize("key", KEYS, ids=lambda key: str(key).split("/")[0])
def test_object_that_no_row_names_goes_after_a_day(key: str) -> None:
    path = store(key)
    assert deleted(hours=23) == 0
    SweepTurn.objects.all().delete()
    assert deleted(hours=25) == 1
    assert not path.exists()


def test_object_that_a_row_names_stays_whatever_its_age() -> None:
    paths = [store(key) for key in KEYS]
    make_book(object_key=KEYS[0])
    make_stored_clip(original_key=KEYS[1], used_key=KEYS[2])
    job = make_ended_job()
    BookFile.objects.create(job=job, kind="m4b", options_digest="x", key=KEYS[3])
    make_take(audio_key=KEYS[4])
    assert deleted(days=900) == 0
    assert all(path.exists() for path in paths)


@pytest.mark.parametrize(
    "key",
    [
        f"backups/{DIGEST}/{HEX}.flac",
        f"live/{uuid.UUID(int=7)}/{HEX}.pcm",
        f"takes/{HEX}.flac",
        f"takes/zz/{DIGEST}/{HEX}.flac",
        f"takes/{DIGEST[:2]}/mine/{HEX}.flac",
        f"takes/{DIGEST[:2]}/{DIGEST}/notes.txt",
        f"takes/{DIGEST[:2]}/{DIGEST}/more/{HEX}.flac",
        f"exports/{DIGEST}/.{HEX}.m4b.part",
    ],
)
def test_what_is_not_ours_is_never_touched(key: str) -> None:
    path = store(key)
    assert deleted(days=900) == 0
    assert path.exists()


def test_nothing_goes_from_before_the_database_or_where_the_setting_is_off(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """A service that was started on an empty database must not empty the storage."""
    path = store(KEYS[4])
    settings.ORPHAN_HOURS = 0
    assert deleted(days=900) == 0
    settings.ORPHAN_HOURS = 24
    monkeypatch.setattr(objects, "database_made_at", lambda: later(hours=1))
    assert deleted(days=900) == 0
    assert path.exists()


def test_row_written_while_the_walk_runs_keeps_its_object(monkeypatch: pytest.MonkeyPatch) -> None:
    path = store(KEYS[3])
    listed = objects._keys

    def and_then_published(shard: objects.Shard) -> list[str]:
        keys = list(listed(shard))
        if KEYS[3] in keys:
            make_ended_job().exports.update(key=KEYS[3])
        return keys

    monkeypatch.setattr(objects, "_keys", and_then_published)

    assert deleted(days=2) == 0
    assert path.exists()


def test_every_object_is_in_exactly_one_shard() -> None:
    for key in KEYS:
        folder, name = key.rsplit("/", 2)[:2]
        assert sum(one.folder == folder and name.startswith(one.start) for one in ALL) == 1


def test_walk_goes_on_where_it_was_broken_off_and_sees_all_of_it_once_a_day() -> None:
    shards, now = objects.all_shards(), later(days=2)
    rounds = 0
    while SweepTurn.objects.filter(name__startswith="orphans").count() < len(shards):
        objects.delete_orphans(within_seconds=0.0, now=now)
        rounds += 1
        assert rounds <= len(shards)
    turns = dict(SweepTurn.objects.values_list("name", "next_at"))
    objects.delete_orphans(within_seconds=60, now=now)
    assert rounds == len(shards)
    assert dict(SweepTurn.objects.values_list("name", "next_at")) == turns


def test_database_that_was_made_lately_takes_no_turn() -> None:
    """Nothing is old enough there, and a turn is a commit for each of hundreds of shards."""
    made = objects.database_made_at()
    objects.delete_orphans(now=made + dt.timedelta(hours=23))
    assert not SweepTurn.objects.exists()
    objects.delete_orphans(now=made + dt.timedelta(hours=25))
    assert SweepTurn.objects.count() == len(objects.all_shards())


def test_folder_that_cannot_be_read_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    path = store(KEYS[4])
    listdir = default_storage.listdir

    def refusing(folder: str) -> tuple[list[str], list[str]]:
        if folder == "books":
            raise PermissionError(folder)
        return listdir(folder)

    monkeypatch.setattr(default_storage._wrapped, "listdir", refusing)  # type: ignore[attr-defined]

    assert deleted(days=2) == 1
    assert not path.exists()


def test_crowded_folder_is_seen_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttsweb.storage.MOST_FOLDERS", 2)
    for number in range(5):
        store(f"exports/{number:064x}/{HEX}.wav")
    shard = objects.Shard("exports", "0")
    assert len(list(objects.find_orphans(shard, now=later(days=2)))) == 2


def test_every_column_that_names_objects_is_asked() -> None:
    columns = {f"{model.__name__}.{column}" for model, column in objects.key_columns()}
    assert columns >= {
        "BookFile.key", "BookSource.book_key", "BookSource.cover_key", "BookSource.object_key",
        "ClipCodes.key", "Export.key", "LiveChunk.key", "StoredClip.original_key",
        "StoredClip.used_key", "Take.audio_key", "Take.codes_key",
    }  # fmt: skip


def test_objects_of_a_job_whose_deletion_was_killed_go_with_the_round_of_the_sweep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take = make_take(audio_key=store(KEYS[4]) and KEYS[4])
    Take.objects.filter(pk=take.pk).delete()  # and then the process was killed
    moment = later(days=2)
    monkeypatch.setattr(leases, "database_now", lambda: moment)
    sweep.tidy()
    assert not default_storage.exists(KEYS[4])


def run(*options: str) -> str:
    output = io.StringIO()
    call_command("orphans", *options, stdout=output)
    return output.getvalue()


def test_command_tells_and_deletes_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = later(days=2)
    monkeypatch.setattr(leases, "database_now", lambda: moment)
    paths = [store(key) for key in KEYS]
    named = make_ended_job()
    *lines, last = run().splitlines()
    assert sorted(lines) == [f"{key}  5" for key in KEYS]
    assert last == "5 objects, 25 bytes found; --delete removes them"
    for options in ([], ["--delete"]):
        assert all(path.exists() for path in paths)
        answer = json.loads(run(*options, "--json"))
        assert sorted(one["key"] for one in answer["objects"]) == KEYS, options
        assert (answer["bytes"], answer["deleted"]) == (25, bool(options)), options
    assert not any(path.exists() for path in paths)
    assert default_storage.exists(Export.objects.get(job=named).key)
