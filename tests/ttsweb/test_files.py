"""What the service writes: whole files or none, readable by its own user alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from django.core.exceptions import SuspiciousFileOperation
from django.core.files.base import ContentFile, File
from kombu import Connection
from kombu.exceptions import ChannelError

from tests.workers.commands import run, run_python
from ttsweb import private_files
from ttsweb.configuration.builders import broker_settings
from ttsweb.private_files import keep_files_private, mend_modes, users_umask
from ttsweb.storage import AtomicFileSystemStorage

THOROUGH = pytest.mark.thorough
# What writes a file of each kind, and a secret.
MAKE_SECRET = """
import django; django.setup()
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from synth.webhooks import rotate_secret, secret_of
from ttsweb import migration, work
migration.migrate_once(settings.DATA_DIR)
default_storage.save("clips/ab/one.wav", ContentFile(b"sound"))
assert work.send(work.Kind.EXPORT, 1)
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


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def make_old(data: Path) -> None:
    """Make what an early version has written, for all users to read."""
    names = ("db.sqlite3", "db.sqlite3-wal", "secret_key", "migrate.lock", "cache/a.json")
    for name in (*names, "queue/messages/1.msg", "storage/clips/ab/clip.wav"):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text("x")
    open_all(data)


def open_all(data: Path) -> None:
    for path in (data, *data.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


@pytest.fixture
def umask(request: pytest.FixtureRequest) -> None:
    """Put the process's umask and what is remembered of it back after the test."""
    request.addfinalizer(
        partial(setattr, private_files, "_users_umask", private_files._users_umask)
    )
    request.addfinalizer(partial(os.umask, os.umask(0o022)))
    private_files._users_umask = None


# --- modes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [(), pytest.param(("demo", "--no-serve", "--text", "Good."), marks=THOROUGH)]
)
def test_every_file_of_a_new_installation_is_private_and_holds_no_secret_in_clear(
    command: tuple[str, ...], clean_env: dict[str, str]
) -> None:
    if command:
        ended = run(clean_env, *command)
        assert ended.returncode == 0, ended.stderr
    data = Path(clean_env["TTS_DATA_DIR"])
    secrets = run_python(clean_env, MAKE_SECRET).split()

    assert open_paths(data) == []
    made = {"db.sqlite3", "secret_key", "storage", "queue"} | (
        {"logs", "out"} if command else set()
    )
    assert made <= {path.name for path in data.iterdir()}
    assert len(secrets) == 2
    for path in data.glob("db.sqlite3*"):
        for secret in secrets:
            assert secret.removeprefix("whsec_").encode() not in path.read_bytes()


@THOROUGH
def test_old_installation_is_mended_at_the_next_start_whatever_the_umask_is(
    clean_env: dict[str, str], tmp_path: Path
) -> None:
    data, storage = Path(clean_env["TTS_DATA_DIR"]), tmp_path / "elsewhere"
    environment = clean_env | {"TTS_STORAGE": str(storage)}
    run(environment, "migrate")
    make_old(storage)
    open_all(data)

    ended = run(environment, "migrate")

    assert ended.returncode == 0, ended.stderr
    assert open_paths(data, storage) == []


def test_mending_leaves_alone_what_is_not_ours(tmp_path: Path) -> None:
    data, foreign = tmp_path / "data", tmp_path / "foreign.txt"
    make_old(data)
    (data / "models").mkdir()
    (data / "models").chmod(0o755)
    foreign.write_text("x")
    foreign.chmod(0o644)
    (data / "cache" / "link").symlink_to(foreign)

    assert mend_modes(data, data / "storage") > 10
    assert (mode_of(data / "models"), mode_of(foreign)) == (0o755, 0o644)
    assert mend_modes(data, data / "storage") == 0


def test_folder_that_everybody_writes_to_stays_so(tmp_path: Path) -> None:
    make_old(tmp_path)
    tmp_path.chmod(0o1777)
    mend_modes(tmp_path, tmp_path / "storage")
    assert (mode_of(tmp_path), mode_of(tmp_path / "db.sqlite3")) == (0o1777, 0o600)


@pytest.mark.usefixtures("umask")
def test_what_a_command_hands_out_has_the_modes_of_the_users_shell(tmp_path: Path) -> None:
    keep_files_private()
    keep_files_private()  # twice: the first umask is the user's

    (tmp_path / "kept").write_text("x")
    with users_umask():
        (tmp_path / "handed out").write_text("x")
    (tmp_path / "kept after").write_text("x")

    modes = {path.name: mode_of(path) for path in tmp_path.iterdir()}
    assert modes == {"kept": 0o600, "handed out": 0o644, "kept after": 0o600}


# --- objects of the storage -----------------------------------------------------------------------


class BreaksHalfWay(File):  # type: ignore[type-arg]  # the stub's parameter does not exist at run time
    def chunks(self, chunk_size: int | None = None) -> Iterator[bytes]:
        yield b"first"
        raise OSError(28, "No space left on device")


@pytest.mark.usefixtures("umask")
def test_object_is_published_whole_private_whatever_the_umask_and_never_overwritten(
    tmp_path: Path,
) -> None:
    storage = AtomicFileSystemStorage(location=tmp_path / "objects")
    name = storage.save("clips/ab/one.wav", ContentFile(b"sound"))
    other = storage.save(name, ContentFile(b"another"))
    found = {path.name: path.read_bytes() for path in (tmp_path / "objects/clips/ab").iterdir()}

    assert name == "clips/ab/one.wav"
    assert found == {"one.wav": b"sound", Path(other).name: b"another"}
    assert open_paths(tmp_path / "objects") == []


def test_a_full_disk_leaves_nothing_behind_and_no_name_leaves_the_folder(tmp_path: Path) -> None:
    storage = AtomicFileSystemStorage(location=tmp_path / "inside")
    with pytest.raises(OSError, match="No space"):
        storage.save("clips/ab/one.wav", BreaksHalfWay(None, name="one.wav"))
    with pytest.raises(SuspiciousFileOperation):
        storage.save(os.path.join("..", "outside.wav"), ContentFile(b"x"))  # noqa: PTH118
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


# --- messages: whoever looks while one is written finds none, then the whole of it ----------------


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[Any]:
    found = broker_settings(None, data_dir=tmp_path)
    options = found["broker_transport_options"]
    for name in ("data_folder_in", "control_folder"):
        Path(options[name]).mkdir(parents=True)
    with Connection(
        found["broker_url"], transport=found["broker_transport"], transport_options=options
    ) as connection:
        yield connection.channel()


def test_message_is_found_when_it_is_complete(
    channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    rename = Path.replace

    def look_first(source: Path, target: Path) -> Path:
        with pytest.raises(Empty):
            channel._get("cpu")
        looks.append(target.name)
        return rename(source, target)

    monkeypatch.setattr(Path, "replace", look_first)
    message = {"body": "Straße", "properties": {}}

    channel._put("cpu", message)

    assert len(looks) == 1
    assert channel._get("cpu") == message
    with pytest.raises(Empty):
        channel._get("cpu")


def test_messages_come_to_their_queue(channel: Any) -> None:
    for number in range(3):
        channel._put("cpu", {"number": number})
    channel._put("synth", {"number": 9})
    assert channel._size("cpu") == 3
    assert sorted(channel._get("cpu")["number"] for _ in range(3)) == [0, 1, 2]
    assert channel._get("synth") == {"number": 9}


def test_folder_that_cannot_be_written_is_an_error_of_the_channel(channel: Any) -> None:
    Path(channel.data_folder_in).rmdir()
    with pytest.raises(ChannelError):
        channel._put("cpu", {})
