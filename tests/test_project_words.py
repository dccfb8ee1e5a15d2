"""The project's files name no machine that they were made on, and no package registry."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources import PROJECT

TEXT_SUFFIXES = {
    "", ".cfg", ".css", ".example", ".html", ".ini", ".js", ".json", ".md", ".py", ".sh", ".toml",
    ".txt", ".yaml", ".yml",
}  # fmt: skip

# One letter of each is in brackets, so that this file does not find itself.
FORBIDDEN = {
    "a path of somebody's machine": re.compile(
        r"(?<![\w.$}])/(?:wor[k]|roo[t]|hom[e]/\w+|User[s]/\w+|tmp/bas[h]_jobs)/"
    ),
    "the host of a package registry": re.compile(
        r"pyp[i]\.org|pythonhoste[d]\.org|registry\.np[m]js|deb\.debia[n]\.org"
        r"|(?:download|files)\.pytorc[h]\.org"
    ),
}


def text_files() -> Iterator[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=PROJECT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("this is no git checkout")
    for name in filter(None, listed.stdout.decode().split("\0")):
        path = PROJECT / name
        is_data = name.startswith("tests/data/golden/") or path.stat().st_size > 1_000_000
        if path.suffix in TEXT_SUFFIXES and path.is_file() and not is_data:
            yield path


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("open('/{}/shared/x')".format("work"), "a path of somebody's machine"),
        ("cd /{}/alice/project".format("home"), "a path of somebody's machine"),
        ("https://{}.org/simple".format("pypi"), "the host of a package registry"),
        *((line, "") for line in ("$HOME/work/x", "the framework/engine", "a/root/b", "/app/data")),
    ],
)
def test_pattern_finds_what_it_is_there_for_and_lets_ordinary_paths_pass(
    line: str, what: str
) -> None:
    found = [name for name, pattern in FORBIDDEN.items() if pattern.search(line)]
    assert found == ([what] if what else [])
