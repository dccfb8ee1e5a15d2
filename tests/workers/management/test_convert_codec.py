"""Test the command that converts a codec once."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest
from django.core.management import call_command

from ttsweb.commands.base import CommandError
from ttsweb.commands.line import find_command

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


def test_the_command_writes_the_file_and_names_its_fingerprint(checkpoint: Path) -> None:
    printed = run(str(checkpoint))
    record = json.loads((checkpoint / "codec.safetensors.json").read_text(encoding="utf-8"))
    assert str(checkpoint / "codec.safetensors") in printed
    assert record["codec_fingerprint"] in printed
    result = json.loads(run(str(checkpoint), "--json"))
    assert result["path"] == str(checkpoint / "codec.safetensors")
    assert result["num_tensors"] == 535
    assert result["codec_fingerprint"] == record["codec_fingerprint"]
    assert len(result["codec_fingerprint"]) == 64
    command = find_command("convert_codec")
    assert command is not None and not command.needs_django


def test_a_folder_without_a_codec_is_a_command_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="nothing to convert"):
        run(str(tmp_path))
