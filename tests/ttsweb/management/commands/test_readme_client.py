"""README's lines for the Python client do what they promise."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.ttsweb.management.commands.conftest import CLIP, Live
from tests.workers.commands import PROJECT

README = (PROJECT / "README.md").read_text(encoding="utf-8")


def test_example_of_the_readme_ends_with_a_file(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = re.search(r"```python\n(from ttsweb\.client .*?)```", README, re.DOTALL)
    assert found is not None
    code = found[1].replace("http://127.0.0.1:8000", live.client.url).replace("Ada", "Emmy")
    shutil.copy(CLIP, tmp_path / "clip.wav")
    monkeypatch.chdir(tmp_path)
    exec(code, {"KEY": live.environment["TTS_API_KEY"]})

    assert (tmp_path / "morning.mp3").stat().st_size > 1000
