"""An installation with rows and real objects, and another one beside it that is empty."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.management import call_command
from pytest_django import Settings

from synth.models import Export, RenderJob, Take
from synth.webhooks import secret_of
from tests.factories import make_export, make_job, make_take, make_user
from tests.workers import pairs
from tests.workers.pairs import file_pair, new_voice
from voices.models import StoredClip
from workers.rendering.codes import store_flac

RATE = 44_100


def call(*arguments: Any) -> tuple[int, dict[str, Any]]:
    """Run a command here; return its exit code and the object that it prints."""
    out = io.StringIO()
    code = 0
    try:
        call_command(*map(str, arguments), "--json", stdout=out, stderr=io.StringIO())
    except SystemExit as error:
        code = int(error.code or 0)
    found: dict[str, Any] = json.loads(out.getvalue())
    return code, found


@contextmanager
def entered_as_it_is(pair: pairs.Pair, settings: Settings) -> Iterator[None]:
    """Point this process at a pair of whose database nothing is made."""
    settings.DATA_DIR = pair.data_dir
    own = {
        "BACKEND": "ttsweb.storage.AtomicFileSystemStorage",
        "OPTIONS": {"location": pair.data_dir / "storage"},
    }
    settings.STORAGES = settings.STORAGES | {"default": own}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "_make_tables", lambda: None)
        with pair.entered(settings):
            yield


@pytest.fixture
def elsewhere(
    tmp_path: Path, clean_env: dict[str, str], settings: Settings
) -> Callable[[], AbstractContextManager[None]]:
    """What points this process at an empty installation on SQLite, until its block ends."""
    other = file_pair(clean_env, tmp_path / "other")
    return lambda: entered_as_it_is(other, settings)


@pytest.fixture
def installation(
    tmp_path: Path, clean_env: dict[str, str], settings: Settings, django_db_blocker: Any
) -> Iterator[RenderJob]:
    """A job with two takes of real audio and a file, a voice with a clip, and a webhook secret.

    The secret key is the data folder's own.
    """
    here = file_pair(clean_env, tmp_path / "data")
    with django_db_blocker.unblock(), here.entered(settings):
        yield fill(settings)


def fill(settings: Settings) -> RenderJob:
    (settings.DATA_DIR / "secret_key").write_text(settings.SECRET_KEY)
    secret_of(make_user("ada"))
    job = make_job(segments=2, voice=new_voice(), status="succeeded")
    StoredClip.objects.filter(original_key__endswith="original.wav").delete()
    rng = np.random.default_rng(3)
    for segment in job.segments.order_by("index"):
        audio = rng.uniform(-0.5, 0.5, RATE // 2).astype(np.float32)
        key = store_flac("takes/aa/bb", audio, RATE)
        codes = default_storage.save("takes/aa/bb/codes.safetensors", ContentFile(b"codes"))
        size = default_storage.size(key) + default_storage.size(codes)
        about: dict[str, Any] = {"audio_key": key, "codes_key": codes, "size_bytes": size}
        make_take([segment], audio_seconds=0.5, sample_rate=RATE, **about)
        segment.status = "done"
        segment.save(update_fields=["status"])
    content = b"the finished file"
    key = default_storage.save("exports/cc/file.wav", ContentFile(content))
    digest = hashlib.sha256(content).hexdigest()
    make_export(job, key=key, sha256=digest, size_bytes=len(content))
    assert (Take.objects.count(), Export.objects.count()) == (2, 1)
    return job
