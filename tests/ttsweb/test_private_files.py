"""What the service writes is readable by its own user alone, also what an older one has left."""

from __future__ import annotations

import os
import stat
from functools import partial
from pathlib import Path

import pytest
from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

from tests.workers.commands import run, run_python
from ttsweb import private_files
from ttsweb.private_files import keep_files_private, mend_modes, users_umask

MAKE_SECRET = """
import django; django.setup()
from django.contrib.auth import get_user_model
from synth.webhooks.endpoints import rotate_secret, secret_of
user, _ = get_user_model().objects.get_or_create(username="tester")
secret_of(user)
row = rotate_secret(user)
print(row.secret, row.previous)
"""


def open_paths(*folders: Path) -> list[str]:
    """Return what others may read, write or enter, of folders and all that is in them."""
    found = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    return [
        f"{stat.S_IMODE(path.lstat().st_mode):o} {path}"
        for path in found
        if path.lstat().st_mode & 0o077
    ]


def make_old(data: Path) -> None:
    for name in ("queue/messages/1.msg", "storage/clips/ab/clip.wav", "cache/a.json"):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text("x")
    for name in ("db.sqlite3", "db.sqlite3-wal", "secret_key", "migrate.lock"):
        (data / name).write_text("x")
    for path in (data, *data.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


@pytest.fixture
def umask(request: pytest.FixtureRequest) -> None:
    """Put the process's umask and what is remembered of it back after the test."""
    before, remembered = os.umask(0o022), private_files._users_umask
    request.addfinalizer(partial(os.umask, before))
    request.addfinalizer(partial(setattr, private_files, "_users_umask", remembered))
    private_files._users_umask = None


def test_every_file_of_a_new_installation_is_private_and_holds_no_secret_in_clear(
    clean_env: dict[str, str],
) -> None:
    ended = run(clean_env, "demo", "--no-serve", "--text", "Good.")
    assert ended.returncode == 0, ended.stderr
    data = Path(clean_env["TTS_DATA_DIR"])
    secrets = run_python(clean_env, MAKE_SECRET).split()

    assert open_paths(data) == []
    assert {"db.sqlite3", "secret_key", "storage", "queue", "logs", "out"} <= {
        path.name for path in data.iterdir()
    }
    assert len(secrets) == 2
    for path in data.glob("db.sqlite3*"):
        for secret in secrets:
            assert secret.encode() not in path.read_bytes()
            assert secret.removeprefix("whsec_").encode() not in path.read_bytes()


@pytest.mark.thorough
def test_old_installation_is_mended_at_the_next_start_whatever_the_umask_is(
    clean_env: dict[str, str], tmp_path: Path
) -> None:
    data = Path(clean_env["TTS_DATA_DIR"])
    storage = tmp_path / "elsewhere"
    run(clean_env | {"TTS_STORAGE_DIR": str(storage)}, "migrate")
    make_old(storage)
    for path in (data, *data.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)

    ended = run(clean_env | {"TTS_STORAGE_DIR": str(storage)}, "migrate")

    assert ended.returncode == 0, ended.stderr
    assert open_paths(data, storage) == []


def test_mending_leaves_alone_what_is_not_ours(tmp_path: Path) -> None:
    data = tmp_path / "data"
    make_old(data)
    (data / "models").mkdir()
    (data / "models").chmod(0o755)
    foreign = tmp_path / "foreign.txt"
    foreign.write_text("x")
    foreign.chmod(0o644)
    (data / "cache" / "link").symlink_to(foreign)

    changed = mend_modes(data, data / "storage")

    assert changed > 10
    assert stat.S_IMODE((data / "models").stat().st_mode) == 0o755
    assert stat.S_IMODE(foreign.stat().st_mode) == 0o644
    assert mend_modes(data, data / "storage") == 0


def test_folder_that_everybody_writes_to_stays_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    (tmp_path / "db.sqlite3").write_text("x")
    (tmp_path / "db.sqlite3").chmod(0o644)
    mend_modes(tmp_path, tmp_path / "storage")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777
    assert stat.S_IMODE((tmp_path / "db.sqlite3").stat().st_mode) == 0o600


@pytest.mark.usefixtures("umask")
def test_what_a_command_hands_out_has_the_modes_of_the_users_shell(tmp_path: Path) -> None:
    keep_files_private()
    keep_files_private()  # twice: the first umask is the user's

    (tmp_path / "kept").write_text("x")
    with users_umask():
        (tmp_path / "handed out").write_text("x")
    (tmp_path / "kept after").write_text("x")

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"kept": 0o600, "handed out": 0o644, "kept after": 0o600}


@pytest.mark.usefixtures("umask")
def test_objects_of_the_storage_are_private_without_any_umask() -> None:
    name = default_storage.save("private/a/b.txt", ContentFile(b"x"))
    assert open_paths(Path(settings.STORAGE_DIR) / "private") == []
    default_storage.delete(name)
