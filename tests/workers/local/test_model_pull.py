"""A pull brings exactly the published files here, goes on where it stopped, and says what fails."""

from __future__ import annotations

import fcntl
import io
import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import constants, file_download

from synth.card import read_card
from tests.ttsweb.commands.test_remote_command import Terminal
from tests.workers.local.conftest import CODEC, WEIGHTS
from tests.workers.local.hub import GOOD_TOKEN, OTHER_COMMIT, Hub
from ttsweb.commands.base import StepError
from workers.local.model_pull import drawn_bar, pull
from workers.local.model_source import Listing, ModelSource

pytestmark = pytest.mark.usefixtures("hub_url")


@dataclass
class Puller:
    """Pulls from a hub into a folder; `source` is what is published."""

    hub: Hub
    source: ModelSource
    folder: Path

    def run(self, revision: str = "") -> Listing:
        """Return what is then there."""
        return pull(self.source, self.folder, revision or self.source.revision, lambda line: None)

    def again(self) -> Hub:
        """Pull once more; return the hub with what was asked of it for that."""
        self.hub.requests.clear()
        self.run()
        return self.hub

    def failure(self, revision: str = "") -> StepError:
        with pytest.raises(StepError) as raised:
            self.run(revision)
        return raised.value

    def file(self, name: str) -> bytes | None:
        path = self.folder / name
        return path.read_bytes() if path.exists() else None


@pytest.fixture
def puller(hub: Hub, source: ModelSource, tmp_path: Path) -> Puller:
    folder = tmp_path / "s2"
    folder.mkdir()
    return Puller(hub, source, folder)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library waits a second before it tries again."""
    monkeypatch.setattr(file_download, "time", SimpleNamespace(sleep=lambda seconds: None))


def test_the_folder_holds_the_wanted_files_and_a_card(puller: Puller) -> None:
    puller.run()
    visible = {path.name for path in puller.folder.iterdir() if not path.name.startswith(".")}
    assert visible == {
        "config.json", "tokenizer.json", "model-00001-of-00001.safetensors", "codec.pth",
        "LICENSE.md", "card.json",
    }  # fmt: skip
    assert puller.file("codec.pth") == CODEC
    assert puller.file("model-00001-of-00001.safetensors") == WEIGHTS
    assert read_card(puller.folder).licence == "Fish Audio Research License"


def test_a_second_pull_keeps_what_is_there_and_mixes_no_revisions(puller: Puller) -> None:
    (puller.folder / "card.json").write_text('{"name": "mine", "licence": "own"}')
    puller.run()
    assert puller.again().requests == []
    assert read_card(puller.folder).name == "mine"
    assert puller.failure("main").code == "revision_changed"
    assert puller.failure("nowhere").code == "not_found"


def test_a_pull_that_broke_off_goes_on_at_the_byte_where_it_stopped(
    puller: Puller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)  # what has arrived is kept by these
    puller.hub.cut_after = 300_000
    assert puller.failure().code == "hub_error"
    assert puller.file("codec.pth.part") == CODEC[:300_000]
    assert puller.file("codec.pth") is None
    puller.hub.cut_after = None
    assert puller.again().ranges == ["bytes=300000-"]
    assert (puller.file("codec.pth"), puller.file("codec.pth.part")) == (CODEC, None)


def test_a_part_that_is_too_long_is_begun_again(puller: Puller) -> None:
    (puller.folder / "codec.pth.part").write_bytes(CODEC + b"more")
    assert puller.again().ranges == []
    assert puller.file("codec.pth") == CODEC


@pytest.mark.parametrize("name", ["codec.pth", "config.json"])
def test_content_of_another_digest_is_refused_and_removed(puller: Puller, name: str) -> None:
    puller.hub.sent_instead[name] = bytes(len(puller.hub.files[name]))
    error = puller.failure()
    assert (error.code, name in str(error)) == ("digest_mismatch", True)
    assert (puller.file(name), puller.file(f"{name}.part")) == (None, None)


def test_another_codec_for_the_pinned_commit_is_refused_at_once(puller: Puller) -> None:
    puller.hub.files["codec.pth"] = b"another"
    assert puller.failure().code == "digest_mismatch"
    assert puller.hub.downloads == []


def test_a_file_that_was_changed_here_is_brought_again(puller: Puller) -> None:
    puller.run()
    (puller.folder / "codec.pth").write_bytes(bytes(len(CODEC)))
    assert puller.again().downloads == ["codec.pth"]
    assert puller.file("codec.pth") == CODEC


@pytest.mark.parametrize(
    ("token", "code", "hint"),
    [(None, "gated", "HF_TOKEN="), ("hf_other", "access_denied", "Accept the model's terms")],
)
def test_a_gated_model_says_what_to_do(
    puller: Puller, monkeypatch: pytest.MonkeyPatch, token: str | None, code: str, hint: str
) -> None:
    puller.hub.is_gated = True
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    error = puller.failure()
    assert (error.code, hint in str(error)) == (code, True)
    monkeypatch.setenv("HF_TOKEN", GOOD_TOKEN)
    puller.run()
    assert puller.file("codec.pth") is not None


def test_a_disk_that_is_too_small_is_said_before_anything_is_downloaded(
    puller: Puller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=100_500_000))
    error = puller.failure()
    assert (error.code, "--to" in str(error)) == ("disk_full", True)
    assert puller.hub.downloads == []


def test_offline_a_whole_folder_is_checked_and_an_empty_one_refused(
    puller: Puller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    puller.run()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    puller.again()
    puller.folder = tmp_path
    assert puller.failure().code == "offline"
    assert puller.hub.requests == []


def test_a_branch_is_resolved_to_its_commit_and_held_to_no_pin(puller: Puller) -> None:
    puller.hub.files["codec.pth"] = b"a later codec"
    assert puller.run("main").revision == OTHER_COMMIT
    assert puller.file("codec.pth") == b"a later codec"
    downloads = [path for _, path, _ in puller.hub.requests if "/resolve/" in path]
    assert all(OTHER_COMMIT in path for path in downloads)


def test_a_repository_without_weights_is_refused(puller: Puller) -> None:
    del puller.hub.files["codec.pth"]
    puller.source = replace(puller.source, digests={})
    error = puller.failure()
    assert (error.code, "codec.pth" in str(error)) == ("unexpected_files", True)


def test_two_pulls_never_write_to_one_folder(puller: Puller) -> None:
    with (puller.folder / ".pull.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert puller.failure().code == "pull_running"


@pytest.mark.parametrize("record", ["{", "[]", '{"files": [5]}', '{"files": [{"path": "a"}]}'])
def test_a_damaged_record_is_made_anew(puller: Puller, record: str) -> None:
    puller.run()
    (puller.folder / ".pulled.json").write_text(record)
    puller.run()
    assert json.loads(puller.file(".pulled.json") or b"")["revision"] == puller.source.revision


@pytest.mark.parametrize(("stream", "is_drawn"), [(Terminal(), True), (io.StringIO(), False)])
def test_a_bar_is_drawn_on_a_terminal_alone(stream: io.StringIO, is_drawn: bool) -> None:
    with drawn_bar()(total=5, file=stream, desc="codec.pth") as bar:
        bar.update(5)
    assert ("codec.pth" in stream.getvalue()) is is_drawn
