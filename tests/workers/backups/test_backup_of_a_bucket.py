"""A storage that is a bucket is backed up into a folder, and restored into another bucket."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import default_storage
from pytest_django import Settings

from synth.models import Export, Take
from tests.conftest import use_storage
from tests.workers.backups.conftest import call, entered_as_it_is, fill
from tests.workers.pairs import file_pair
from workers.objects import named_objects


def test_bucket_is_backed_up_checked_and_restored(
    s3: Any,
    tmp_path: Path,
    clean_env: dict[str, str],
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    django_db_blocker: Any,
) -> None:
    def use_new_bucket() -> None:
        name = s3.make_bucket(f"test-{uuid.uuid4().hex}")
        use_storage(settings, monkeypatch, s3, s3.storage_url(name, "a/prefix"))

    here, other = (file_pair(clean_env, tmp_path / name) for name in ("data", "other"))
    with django_db_blocker.unblock(), here.entered(settings):
        use_new_bucket()
        fill(settings)
        before = {one.key: default_storage.open(one.key).read() for one in named_objects()}
        code, told = call("backup", tmp_path / "backups")
        assert (code, told["objects"]) == (0, len(before))
        take = Take.objects.order_by("pk")[0]
        default_storage.delete(take.audio_key)
        code, told = call("check_data")
        assert (code, [one["state"] for one in told["unfit"]]) == (1, ["missing"])
        assert call("restore", tmp_path / "backups", "--missing")[1]["restored"] == [take.audio_key]
        assert call("check_data")[0] == 0
        with entered_as_it_is(other, settings):
            use_new_bucket()
            assert call("restore", tmp_path / "backups")[0] == 0
            assert {key: default_storage.open(key).read() for key in before} == before
            assert Export.objects.count() == 1
            assert call("check_data")[0] == 0
