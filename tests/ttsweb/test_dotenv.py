"""The form of a `.env` file."""

from __future__ import annotations

from pathlib import Path

import pytest

from ttsweb.configuration.dotenv import read_dotenv
from ttsweb.configuration.specs import SettingError


def read(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / ".env"
    path.write_text(text, encoding="utf-8")
    return read_dotenv(path)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=1", "1"),
        ("A = 1 ", "1"),
        ("export A=1", "1"),
        ("A=", ""),
        ("A=one two", "one two"),
        ("A=one # two", "one"),
        ("A=# two", ""),
        ("A=one#two", "one#two"),
        ("A='one # two'", "one # two"),
        ('A="one" # two', "one"),
        ("A=redis://:p=x@host/0", "redis://:p=x@host/0"),
        ("A=grün", "grün"),
    ],
)
def test_line_gives_the_value_that_a_shell_would(tmp_path: Path, line: str, value: str) -> None:
    assert read(tmp_path, f"# a comment\n\n{line}\n") == {"A": value}


@pytest.mark.parametrize("line", ["A", "=1", "2A=1", "A='one", "A='one' two", "A-B=1"])
def test_line_of_another_form_is_refused_by_number_and_not_shown(tmp_path: Path, line: str) -> None:
    with pytest.raises(SettingError, match=r"\.env, line 2: expected") as caught:
        read(tmp_path, f"B=1\n{line}\n")

    assert "one" not in str(caught.value).removesuffix("expected one quoted value")


def test_name_that_comes_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="line 2: A is set a second time"):
        read(tmp_path, "A=1\nA=2\n")


def test_absent_file_is_empty(tmp_path: Path) -> None:
    assert read_dotenv(tmp_path / ".env") == {}


def test_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"A=\xff\n")

    with pytest.raises(SettingError, match="cannot be read"):
        read_dotenv(tmp_path / ".env")
    with pytest.raises(SettingError, match="cannot be read"):
        read_dotenv(tmp_path)
