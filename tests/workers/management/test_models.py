"""Models are pulled, listed and converted by commands."""

from __future__ import annotations

import io
import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import call_command
from pytest_django import Settings

from tests.workers.commands import PROJECT
from tests.workers.local.hub import GOOD_TOKEN, Hub, serve
from ttsweb.commands.base import CommandError
from ttsweb.commands.line import find_command
from workers.local.model_source import (
    DECLARATION_NAME,
    S2_PRO,
    Listing,
    RemoteFile,
    read_declaration,
    write_declaration,
    write_listing,
)

ACCEPT = "--yes-i-accept-the-research-licence"
PINNED_CODEC = S2_PRO.digests["codec.pth"]


Calls = list[tuple[str, str]]


@pytest.fixture
def pulled(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Let a pull bring nothing, and note folder and revision; pulls have tests of their own."""
    calls: Calls = []

    def stand_in(source: object, folder: Path, revision: str, say: object) -> Listing:
        calls.append((str(folder), revision))
        return Listing("s2-pro", revision, (RemoteFile("codec.pth", 1_500_000_000, PINNED_CODEC),))

    monkeypatch.setattr("workers.management.commands.models.pull", stand_in)
    return calls


def test_without_a_terminal_a_declaration_has_to_be_given(
    tmp_path: Path, pulled: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        with pytest.raises(CommandError) as raised:
            call_command("models", "pull", "--to", str(tmp_path / "new"))
    assert raised.value.returncode == 2
    assert ACCEPT in str(raised.value)
    assert pulled == []
    assert not (tmp_path / "new").exists()


def test_a_declaration_is_stored_with_who_and_when_and_not_asked_for_again(
    tmp_path: Path, pulled: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("models", "pull", "--to", str(tmp_path), ACCEPT, "--declared-by", "Ada")
    first = json.loads((tmp_path / DECLARATION_NAME).read_text())
    call_command("models", "pull", "--to", str(tmp_path), "--yes-i-have-a-written-licence")
    known = (first["use"], first["declared_by"], first["licence"])
    assert known == ("research", "Ada", "Fish Audio Research License")
    assert first["declared_at"].endswith("+00:00")
    assert json.loads((tmp_path / DECLARATION_NAME).read_text()) == first
    assert pulled == [(str(tmp_path), S2_PRO.revision)] * 2
    assert f"TTS_CHECKPOINT={tmp_path} ./tts doctor" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "use"), [("1", "research"), ("2", "written-licence"), ("yes", None)]
)
def test_at_a_terminal_the_use_is_asked_for(
    tmp_path: Path, pulled: Calls, monkeypatch: pytest.MonkeyPatch, answer: str, use: str | None
) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        if use is None:
            with pytest.raises(CommandError, match="not_declared"):
                call_command("models", "pull", "--to", str(tmp_path))
        else:
            call_command("models", "pull", "--to", str(tmp_path))
    os.close(ours)
    declaration = read_declaration(tmp_path)
    assert (declaration.use if declaration else None) == use
    assert len(pulled) == (use is not None)


def test_a_damaged_declaration_is_never_taken_for_one(tmp_path: Path, pulled: Calls) -> None:
    (tmp_path / DECLARATION_NAME).write_text('{"use": "anything"}')
    with pytest.raises(CommandError, match="declaration_invalid"):
        call_command("models", "pull", "--to", str(tmp_path), ACCEPT)
    assert pulled == []


@pytest.mark.parametrize(
    ("option", "words"),
    [
        *((f"--to={{tmp}}/{below}", "disk_error: .*cannot be written")
          for below in ("file", "file/below")),
        *((f"--revision={revision}", "revision")
          for revision in ("", "../main", "a b", "x" * 101, "main?x=1")),
    ],
)  # fmt: skip
def test_a_folder_that_cannot_be_made_and_a_revision_that_is_none_are_said(
    tmp_path: Path, option: str, words: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match=words):
        call_command("models", "pull", option.format(tmp=tmp_path), ACCEPT)


def test_ls_tells_whole_from_incomplete_and_marks_the_chosen_one(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.DATA_DIR = tmp_path
    for name, size in (("good", 3), ("broken", 4)):
        folder = tmp_path / "models" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_bytes(b"{ }")
        file = RemoteFile("config.json", size, "0" * 40)
        write_listing(folder, Listing("s2-pro", S2_PRO.revision, (file,)))
        write_declaration(folder, S2_PRO, "research", "Ada")
    settings.CHECKPOINT = tmp_path / "models" / "good"

    call_command("models", "ls", "--json")

    found = {Path(m["folder"]).name: m for m in json.loads(capsys.readouterr().out)}
    states = {name: m["state"] for name, m in found.items()}
    assert states == {"demo": "whole", "good": "whole", "broken": "incomplete"}
    assert [name for name, m in found.items() if m["is_chosen"]] == ["good"]
    assert found["good"]["declared_use"] == "research"


@pytest.fixture
def gated() -> Iterator[str]:
    hub = Hub({"config.json": b"{}", "tokenizer.json": b"{}", "a.safetensors": b"a"}, lfs=set())
    hub.files["codec.pth"] = b"codec"
    hub.is_gated = True
    with serve(hub) as url:
        yield url


@pytest.mark.parametrize(
    ("given", "code"),
    [
        pytest.param({}, "gated: ", marks=pytest.mark.thorough),
        ({"HF_TOKEN": "hf_other"}, "access_denied: "),
        ({"HF_TOKEN": GOOD_TOKEN, "HF_HUB_OFFLINE": "1"}, "offline: "),
        pytest.param({"HF_ENDPOINT": "http://127.0.0.1:9"}, "hub_unreachable: ",
                     marks=pytest.mark.thorough),
    ],
)  # fmt: skip
def test_the_library_s_variables_are_honoured_and_what_fails_ends_with_1(
    gated: str, clean_env: dict[str, str], tmp_path: Path, given: dict[str, str], code: str
) -> None:
    env = clean_env | {"HF_ENDPOINT": gated, "HF_HOME": str(tmp_path / "home")} | given
    command = [sys.executable, str(PROJECT / "manage.py"), "models", "pull", "--to"]
    run = subprocess.run(
        [*command, str(tmp_path / "s2"), ACCEPT, "--revision", "main"],
        env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert run.returncode == 1, run.stderr
    assert code in run.stderr
    assert "Traceback" not in run.stderr


GOLDEN = Path(__file__).resolve().parents[2] / "data" / "golden"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    for name in ("codec.pth", "codec_config.json"):
        shutil.copy(GOLDEN / "tiny-s2" / name, tmp_path)
    return tmp_path


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("convert_codec", *arguments, stdout=out)
    return out.getvalue()


def test_convert_codec_writes_the_file_and_names_its_fingerprint(checkpoint: Path) -> None:
    path, printed = str(checkpoint / "codec.safetensors"), run(str(checkpoint))
    fingerprint = json.loads(Path(f"{path}.json").read_text("utf-8"))["codec_fingerprint"]
    assert path in printed and fingerprint in printed
    result = json.loads(run(str(checkpoint), "--json"))
    assert (result["path"], result["num_tensors"]) == (path, 535)
    assert result["codec_fingerprint"] == fingerprint and len(fingerprint) == 64
    command = find_command("convert_codec")
    assert command is not None and not command.needs_django


def test_a_folder_without_a_codec_is_a_command_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="nothing to convert"):
        run(str(tmp_path))
