"""A pull brings exactly the published files here, goes on where it stopped, and says what fails."""

from __future__ import annotations

import fcntl
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import constants, file_download

from synth.card import read_card
from tests.workers.local.conftest import CODEC, WEIGHTS
from tests.workers.local.hub import GOOD_TOKEN, OTHER_COMMIT, Hub
from ttsweb.commands.base import StepError
from workers.local.model_pull import drawn_bar, pull
from workers.local.model_source import ModelSource

pytestmark = pytest.mark.usefixtures("hub_url")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "s2"
    made.mkdir()
    return made


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library waits a second before it tries again."""
    monkeypatch.setattr(file_download, "time", SimpleNamespace(sleep=lambda seconds: None))


def run(source: ModelSource, folder: Path, revision: str = "") -> list[str]:
    said: list[str] = []
    pull(source, folder, revision or source.revision, said.append)
    return said


def failure(source: ModelSource, folder: Path, revision: str = "") -> StepError:
    with pytest.raises(StepError) as raised:
        run(source, folder, revision)
    return raised.value


def visible(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def test_the_folder_holds_the_wanted_files_and_a_card(source: ModelSource, folder: Path) -> None:
    run(source, folder)
    assert visible(folder) == {
        "config.json", "tokenizer.json", "model-00001-of-00001.safetensors", "codec.pth",
        "LICENSE.md", "card.json",
    }  # fmt: skip
    assert (folder / "codec.pth").read_bytes() == CODEC
    assert (folder / "model-00001-of-00001.safetensors").read_bytes() == WEIGHTS
    assert read_card(folder).licence == "Fish Audio Research License"


def test_a_second_pull_keeps_what_is_there_and_mixes_no_other_revision_into_it(
    source: ModelSource, folder: Path, hub: Hub
) -> None:
    (folder / "card.json").write_text('{"name": "mine", "licence": "own"}')
    run(source, folder)
    hub.requests.clear()
    run(source, folder)
    assert hub.requests == []
    assert read_card(folder).name == "mine"
    assert failure(source, folder, "main").code == "revision_changed"
    assert failure(source, folder, "nowhere").code == "not_found"


def test_a_pull_that_broke_off_goes_on_at_the_byte_where_it_stopped(
    source: ModelSource, folder: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)  # what has arrived is kept by these
    hub.cut_after = 300_000
    assert failure(source, folder).code == "hub_error"
    assert (folder / "codec.pth.part").stat().st_size == 300_000
    assert not (folder / "codec.pth").exists()
    hub.cut_after = None
    hub.requests.clear()

    run(source, folder)

    assert hub.ranges == ["bytes=300000-"]
    assert (folder / "codec.pth").read_bytes() == CODEC
    assert not (folder / "codec.pth.part").exists()


def test_a_part_that_is_too_long_is_begun_again(
    source: ModelSource, folder: Path, hub: Hub
) -> None:
    (folder / "codec.pth.part").write_bytes(CODEC + b"more")
    run(source, folder)
    assert (folder / "codec.pth").read_bytes() == CODEC
    assert hub.ranges == []


@pytest.mark.parametrize("name", ["codec.pth", "config.json"])
def test_content_of_another_digest_is_refused_and_removed(
    source: ModelSource, folder: Path, hub: Hub, name: str
) -> None:
    good = hub.files[name]
    hub.sent_instead[name] = bytes(len(good))
    error = failure(source, folder)
    assert error.code == "digest_mismatch"
    assert name in str(error)
    assert not (folder / name).exists()
    assert not (folder / f"{name}.part").exists()


def test_a_hub_that_lists_another_codec_for_the_pinned_commit_is_refused_before_any_download(
    source: ModelSource, folder: Path, hub: Hub
) -> None:
    hub.files["codec.pth"] = b"another"
    assert failure(source, folder).code == "digest_mismatch"
    assert hub.downloads == []


def test_a_file_that_was_changed_here_is_brought_again(
    source: ModelSource, folder: Path, hub: Hub
) -> None:
    run(source, folder)
    (folder / "codec.pth").write_bytes(bytes(len(CODEC)))
    hub.requests.clear()
    run(source, folder)
    assert hub.downloads == ["codec.pth"]
    assert (folder / "codec.pth").read_bytes() == CODEC


@pytest.mark.parametrize(
    ("token", "code", "hint"),
    [(None, "gated", "HF_TOKEN="), ("hf_other", "access_denied", "Accept the model's terms")],
)
def test_a_gated_model_says_what_to_do(
    source: ModelSource,
    folder: Path,
    hub: Hub,
    monkeypatch: pytest.MonkeyPatch,
    token: str | None,
    code: str,
    hint: str,
) -> None:
    hub.is_gated = True
    if token:
        monkeypatch.setenv("HF_TOKEN", token)

    error = failure(source, folder)

    assert error.code == code
    assert hint in str(error)
    monkeypatch.setenv("HF_TOKEN", GOOD_TOKEN)
    run(source, folder)
    assert (folder / "codec.pth").exists()


def test_a_disk_that_is_too_small_is_said_before_anything_is_downloaded(
    source: ModelSource, folder: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=100_500_000))
    error = failure(source, folder)
    assert error.code == "disk_full"
    assert "--to" in str(error)
    assert hub.downloads == []


def test_offline_a_whole_folder_is_checked_and_an_empty_one_refused(
    source: ModelSource, folder: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run(source, folder)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.requests.clear()
    run(source, folder)
    error = failure(source, tmp_path)
    assert error.code == "offline"
    assert hub.requests == []


def test_a_branch_is_resolved_to_its_commit_and_not_held_to_the_pinned_digest(
    source: ModelSource, folder: Path, hub: Hub
) -> None:
    hub.files["codec.pth"] = b"a later codec"
    listing = pull(source, folder, "main", lambda line: None)
    assert listing.revision == OTHER_COMMIT
    assert (folder / "codec.pth").read_bytes() == b"a later codec"
    assert all(OTHER_COMMIT in path for _, path, _ in hub.requests if "/resolve/" in path)


def test_a_repository_without_weights_is_refused(
    source: ModelSource, folder: Path, hub: Hub
) -> None:
    del hub.files["codec.pth"]
    error = failure(replace(source, digests={}), folder)
    assert error.code == "unexpected_files"
    assert "codec.pth" in str(error)


def test_two_pulls_never_write_to_one_folder(source: ModelSource, folder: Path) -> None:
    with (folder / ".pull.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert failure(source, folder).code == "pull_running"


@pytest.mark.parametrize("record", ["{", "[]", '{"files": [5]}', '{"files": [{"path": "a"}]}'])
def test_a_damaged_record_is_made_anew(source: ModelSource, folder: Path, record: str) -> None:
    run(source, folder)
    (folder / ".pulled.json").write_text(record)
    run(source, folder)
    assert json.loads((folder / ".pulled.json").read_text())["revision"] == source.revision


class Terminal(io.StringIO):
    """What is written to a terminal."""

    def isatty(self) -> bool:
        """Say that it is one."""
        return True


@pytest.mark.parametrize(("stream", "is_drawn"), [(Terminal(), True), (io.StringIO(), False)])
def test_a_bar_is_drawn_on_a_terminal_alone(stream: io.StringIO, is_drawn: bool) -> None:
    with drawn_bar()(total=5, file=stream, desc="codec.pth") as bar:
        bar.update(5)
    assert ("codec.pth" in stream.getvalue()) is is_drawn
