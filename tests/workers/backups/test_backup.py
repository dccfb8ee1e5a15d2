"""What is in a backup, what a restore refuses, and what is missing or damaged and told so."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.management import call_command
from django.utils import timezone
from pytest_django import Settings

from synth.models import Export, RenderJob, SweepTurn, Take, WebhookSecret
from tests.workers.backups.conftest import call
from ttsweb.commands.base import CommandError, StepError
from voices.models import StoredClip
from workers import objects
from workers.backups import folder, making
from workers.backups.folder import FORMAT, MANIFEST, OBJECTS_LIST, backups_in
from workers.backups.making import PART
from workers.objects import NamedObject, named_objects

Elsewhere = Callable[[], AbstractContextManager[None]]


def path(key: str) -> Path:
    return Path(default_storage.path(key))


def keys() -> set[str]:
    return {one.key for one in named_objects()}


def files_of(backup: Path) -> set[str]:
    top = backup / "objects"
    return {one.relative_to(top).as_posix() for one in top.rglob("*") if one.is_file()}


def made(folder: Path, *options: str) -> Path:
    code, told = call("backup", folder, *options)
    assert code == 0
    return Path(told["path"])


def test_backup_holds_what_rows_name_and_can_be_read_by_its_user_alone(
    installation: RenderJob, tmp_path: Path, settings: Settings
) -> None:
    backup = made(tmp_path / "backups")

    assert files_of(backup) == keys()
    for key in keys():
        assert (backup / "objects" / key).read_bytes() == path(key).read_bytes()
    manifest = json.loads((backup / MANIFEST).read_text())
    assert (manifest["objects"], manifest["unfit"]) == (6, [])
    assert "synth.0001_tables" in manifest["migrations"]
    secret = backup / "secret_key"
    assert secret.read_text() == settings.SECRET_KEY
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    rows = sqlite3.connect(backup / "database.sqlite3").execute("SELECT id FROM synth_renderjob")
    assert rows.fetchall() == [(installation.pk.hex,)]
    assert sorted(one.name for one in backup.iterdir()) == [
        "database.sqlite3", "manifest.json", "objects", "objects.jsonl", "secret_key",
    ]  # fmt: skip
    age = timezone.now() - SweepTurn.objects.get(pk="backup").next_at
    assert age < dt.timedelta(minutes=5)


def test_next_backup_shares_the_files_of_the_one_before_and_outlives_it(
    installation: RenderJob, tmp_path: Path
) -> None:
    folder = tmp_path / "backups"
    first = made(folder)
    new = default_storage.save("exports/dd/new.wav", ContentFile(b"new"))
    Export.objects.create(job=installation, format="mp3", key=new, status="done")

    code, told = call("backup", folder)

    assert (code, told["copied"], told["linked"]) == (0, 1, 6)
    second = Path(told["path"])
    for key in files_of(first):
        assert (first / "objects" / key).samefile(second / "objects" / key)
    shutil.rmtree(first)
    assert all((second / "objects" / key).read_bytes() for key in keys())
    third = made(folder, "--keep", "1")
    assert backups_in(folder) == [third]


def test_without_a_key_of_the_data_folder_the_backup_says_that_it_has_none(
    installation: RenderJob, tmp_path: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    (settings.DATA_DIR / "secret_key").write_text("that of another time, not in use now")
    code, told = call("backup", tmp_path / "backups")
    assert (code, told["secret_key"]) == (0, False)
    assert not (Path(told["path"]) / "secret_key").exists()
    call_command("backup", str(tmp_path / "backups"))
    assert "TTS_SECRET_KEY is not in it" in capsys.readouterr().out


def test_what_is_deleted_while_the_backup_is_made_is_neither_missing_nor_kept(
    installation: RenderJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied_to = folder.database_copied_to
    copies: list[Path] = []

    @contextmanager
    def beside_a_user(target: Path) -> Iterator[str]:
        """Have a file made after the first look at objects, and deleted after the rows' copy."""
        is_first = not copies
        copies.append(target)
        if is_first:
            key = default_storage.save("exports/dd/short-lived.wav", ContentFile(b"short"))
            row = Export.objects.create(job=installation, format="mp3", key=key, status="done")
        with copied_to(target) as using:
            if is_first:
                row.delete()
                default_storage.delete(key)
            yield using

    monkeypatch.setattr(making, "database_copied_to", beside_a_user)

    backup = made(tmp_path / "backups")

    assert len(copies) == 2
    assert files_of(backup) == keys()
    rows = sqlite3.connect(backup / "database.sqlite3").execute("SELECT count(*) FROM synth_export")
    assert rows.fetchone() == (1,)


def test_a_missing_and_a_damaged_object_are_told_and_all_else_is_kept(
    installation: RenderJob, tmp_path: Path
) -> None:
    take, export = Take.objects.order_by("pk")[0], Export.objects.get()
    path(take.audio_key).unlink()
    path(export.key).write_bytes(b"something other")

    code, told = call("backup", tmp_path / "backups")

    assert code == 1
    found = {(one["state"], one["kind"], one["key"]) for one in told["unfit"]}
    assert found == {
        ("missing", "take audio", take.audio_key), ("damaged", "export", export.key),
    }  # fmt: skip
    assert files_of(Path(told["path"])) == keys() - {take.audio_key}


def test_a_backup_that_was_cut_off_is_none_and_the_next_one_goes_on_with_it(
    installation: RenderJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "backups"
    with monkeypatch.context() as patch:

        def fill_disk(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(making, "_publish", fill_disk)
        with pytest.raises(CommandError, match="backup_failed: No space left"):
            call("backup", folder)
    assert backups_in(folder) == []
    with pytest.raises(CommandError, match="backup_not_found"):
        call("restore", folder)
    half = folder / PART / "objects" / "exports/cc/half.wav"
    half.write_bytes(b"of a row that has gone since")

    code, told = call("backup", folder)

    assert (code, told["copied"]) == (0, 0)  # all was there
    assert files_of(Path(told["path"])) == keys()
    assert not (folder / PART).exists()


def test_one_backup_at_a_time_is_made_in_a_folder(installation: RenderJob, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    with making._alone(folder), pytest.raises(CommandError, match="backup_running"):
        call("backup", folder)
    with pytest.raises(CommandError, match="--keep must be at least 1"):
        call("backup", folder, "--keep", "0")


def test_restored_installation_has_the_same_rows_objects_and_secrets(
    installation: RenderJob, tmp_path: Path, elsewhere: Elsewhere, settings: Settings
) -> None:
    before = {key: path(key).read_bytes() for key in keys()}
    secret = WebhookSecret.objects.get().secret
    backup, key = made(tmp_path / "backups"), settings.SECRET_KEY
    settings.SECRET_KEY = "k" * 50  # as a new data folder would have one
    with elsewhere():
        settings.IS_EMBEDDED = True
        code, told = call("restore", tmp_path / "backups")

        assert (code, told["objects"]) == (0, len(before))
        assert told["path"] == str(backup)
        assert {name: path(name).read_bytes() for name in keys()} == before
        assert RenderJob.objects.get().pk == installation.pk
        own = settings.DATA_DIR / "secret_key"
        assert own.read_text() == key
        assert stat.S_IMODE(own.stat().st_mode) == 0o600
        settings.SECRET_KEY = key
        assert WebhookSecret.objects.get().secret == secret
        assert call("check_data")[0] == 0
        with pytest.raises(CommandError, match="not_empty: The database has tables"):
            call("restore", backup)


def spoil_object(backup: Path) -> None:
    victim = next(iter(sorted(files_of(backup))))
    file = backup / "objects" / victim
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def change_manifest(**changes: Any) -> Callable[[Path], None]:
    def change(backup: Path) -> None:
        manifest = json.loads((backup / MANIFEST).read_text())
        (backup / MANIFEST).write_text(json.dumps(manifest | changes))

    return change


def shorten(name: str) -> Callable[[Path], None]:
    def change(backup: Path) -> None:
        (backup / name).write_bytes((backup / name).read_bytes()[:-5])

    return change


def lead_out(backup: Path) -> None:
    line = json.dumps({"key": "../../evil", "sha256": "0" * 64, "size": 1}) + "\n"
    (backup / OBJECTS_LIST).write_text(line)
    change_manifest(objects_sha256=hashlib.sha256(line.encode()).hexdigest())(backup)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (spoil_object, "backup_damaged: .*is not what the backup's list says"),
        (shorten("database.sqlite3"), "backup_damaged: .*database.sqlite3"),
        (shorten("objects.jsonl"), "backup_damaged: .*objects.jsonl"),
        (shorten(MANIFEST), "backup_damaged: .*manifest.json"),
        (lead_out, "backup_damaged: .*evil"),
        (change_manifest(format=FORMAT + 1), "backup_newer"),
        (change_manifest(migrations=["synth.0001_tables", "synth.9999_later"]), "backup_newer"),
        (change_manifest(database="postgresql"), "backup_of_other_database"),
    ],
    ids=[
        "object", "database", "list", "manifest", "key", "newer form", "newer tables", "other kind",
    ],
)  # fmt: skip
def test_restore_refuses_before_it_writes_anything(
    spoil: Callable[[Path], None],
    said: str,
    installation: RenderJob,
    tmp_path: Path,
    elsewhere: Elsewhere,
    settings: Settings,
) -> None:
    backup = made(tmp_path / "backups")
    spoil(backup)
    with elsewhere(), pytest.raises(CommandError, match=said):
        call("restore", backup)
    assert not [one for one in (tmp_path / "other").rglob("*") if one.is_file()]


def test_restore_leaves_a_storage_with_other_objects_alone_and_goes_on_with_its_own(
    installation: RenderJob, tmp_path: Path, elsewhere: Elsewhere
) -> None:
    backup = made(tmp_path / "backups")
    first = sorted(files_of(backup))[0]
    with elsewhere():
        foreign = default_storage.save("exports/ff/foreign.wav", ContentFile(b"foreign"))
        with pytest.raises(CommandError, match="not_empty: The storage holds exports/ff/foreign"):
            call("restore", backup)
        default_storage.delete(foreign)
        default_storage.save(first, ContentFile(b"half written by a restore that was cut off"))
        assert call("restore", backup)[0] == 0
        assert call("check_data")[0] == 0


def test_without_postgresql_s_programs_a_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(StepError, match=r"pg_dump was not found\. Install PostgreSQL's client"):
        folder.find_program("pg_dump")


def spoil_take(row: Take) -> None:
    """Turn a bit in the middle, which leaves length and header as they are."""
    content = bytearray(path(row.audio_key).read_bytes())
    content[len(content) // 2] ^= 4
    path(row.audio_key).write_bytes(content)


def test_check_tells_what_is_missing_or_damaged_and_what_to_do(
    installation: RenderJob, tmp_path: Path
) -> None:
    folder = tmp_path / "backups"
    backup = made(folder)
    code, told = call("check_data")
    assert (code, told) == (0, {"checked": 6, "unfit": []})
    flipped, gone = Take.objects.order_by("pk")
    spoil_take(flipped)
    path(gone.audio_key).unlink()
    path(gone.codes_key).write_bytes(b"cut")
    export, clip = Export.objects.get(), StoredClip.objects.get()
    path(export.key).write_bytes(b"other bytes")
    path(clip.original_key).unlink()

    code, told = call("check_data")

    assert (code, told["checked"]) == (1, 6)
    found = {(one["state"], one["kind"], one["id"]) for one in told["unfit"]}
    assert found == {
        ("damaged", "take audio", str(flipped.pk)),
        ("missing", "take audio", str(gone.pk)),
        ("damaged", "export", str(export.pk)),
        ("missing", "stored clip original", str(clip.pk)),
    }
    remedies = {one["id"]: one["remedy"] for one in told["unfit"]}
    segment = installation.segments.get(take=gone)
    address = f"/api/v1/jobs/{installation.pk}/segments/{segment.pk}/render"
    assert address in remedies[str(gone.pk)]
    assert "upload the clip again" in remedies[str(clip.pk)]

    code, told = call("restore", folder, "--missing")

    assert (code, told["missing"], told["path"]) == (0, [], str(backup))
    restored = {flipped.audio_key, gone.audio_key, gone.codes_key, export.key, clip.original_key}
    assert set(told["restored"]) == restored
    assert call("check_data")[0] == 0


def test_check_finds_codes_that_are_shorter_than_their_row_says(installation: RenderJob) -> None:
    take = Take.objects.order_by("pk")[0]
    path(take.codes_key).write_bytes(b"cut")
    code, told = call("check_data")
    assert code == 1
    assert [(one["state"], one["kind"]) for one in told["unfit"]] == [("damaged", "take codes")]


def test_what_is_deleted_during_the_check_is_not_missing(
    installation: RenderJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = objects.state_of

    def delete_first(one: NamedObject) -> str:
        if one.model is Export:
            Export.objects.all().delete()
            default_storage.delete(one.key)
        return look(one)

    monkeypatch.setattr(objects, "state_of", delete_first)
    assert call("check_data")[0] == 0


def test_people_read_lines(
    installation: RenderJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("backup", str(tmp_path / "backups"))
    path(Export.objects.get().key).unlink()
    with pytest.raises(SystemExit):
        call_command("check_data")
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("Backup   ")
    assert shown[-3].startswith("missing  export ")
    assert shown[-2].strip().startswith("Bring it back from a backup")
    assert shown[-1] == "6 objects checked: 1 missing, 0 damaged"
