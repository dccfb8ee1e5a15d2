"""Reading settings from the environment and from a `.env` file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ttsweb.configuration import env
from ttsweb.configuration.env import (
    GONE,
    SETTINGS,
    SettingError,
    env_bool,
    env_float,
    env_int,
    env_list,
    env_path,
    env_secret,
    env_str,
    env_url,
    read_dotenv,
)

Reader = Callable[[], Any]


@pytest.fixture(autouse=True)
def own_register(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave the register and the variables of the real settings as they were."""
    before = dict(SETTINGS)
    monkeypatch.setattr(env, "_from_file", {})
    monkeypatch.delenv("TTS_ENV_FILE", raising=False)
    yield
    SETTINGS.clear()
    SETTINGS.update(before)


read_float = partial(env_float, "TTS_X", default=60.0, low=3.0, high=120.0, help="A number.")
read_int = partial(env_int, "TTS_X", default=4, low=1, high=64, help="A count.")
read_bool = partial(env_bool, "TTS_X", default=True, help="A claim.")
read_choice = partial(env_str, "TTS_X", default="text", choices=("text", "json"), help="A choice.")
read_url = partial(env_url, "TTS_X", schemes=("redis", "rediss"), help="Where.", default_text="no")
read_list = partial(env_list, "TTS_X", default=["a", "b"], help="Names.")
read_some = partial(env_list, "TTS_X", default=[], choices=("a", "b"), help="Some.")
read_path = partial(env_path, "TTS_X", default=Path("/"), help="A path.")


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        *((read_float, value, "a number from 3.0 to 120.0")
          for value in ("abc", "2.9", "120.1", "nan", "inf")),
        *((read_int, value, "a whole number from 1 to 64")
          for value in ("0", "65", "4.0", "1_0", "٤", "9" * 5000)),
        (read_bool, "maybe", "true or false"),
        (read_choice, "TEXT", "one of text, json"),
        *((read_url, value, "an address that starts with redis:// or rediss://")
          for value in ("http://here", "redis:here", "redis://here:port")),
        (read_list, "a,,b", "texts separated by single commas"),
        (read_some, "a,c", "some of a, b, separated by commas"),
    ],
)  # fmt: skip
def test_value_outside_its_type_or_range_is_refused(
    read: Reader, value: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTS_X", value)
    with pytest.raises(SettingError) as caught:
        read()
    assert str(caught.value) == f"TTS_X={value!r}: expected {expected}"


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        (read_float, "3", 3.0), (read_float, " 120.0 ", 120.0), (read_int, "64", 64),
        (read_int, "+1", 1), (read_bool, "Yes", True), (read_bool, "0", False),
        (read_choice, "json", "json"),
        (read_url, "rediss://:pass@host:6379/0", "rediss://:pass@host:6379/0"),
        (read_list, "a.example, b.example", ["a.example", "b.example"]), (read_some, "b", ["b"]),
        # A relative path starts at the folder of the project.
        (read_path, "some/place", env.PROJECT_DIR / "some/place"),
        (read_path, "/some/place", Path("/some/place")),
        (read_path, "~/voices", Path.home() / "voices"),
        # An empty value counts as not set.
        (read_float, "  ", 60.0), (read_int, "  ", 4), (read_bool, "  ", True),
        (read_choice, "  ", "text"), (read_url, "  ", None), (read_list, "  ", ["a", "b"]),
    ],
)  # fmt: skip
def test_good_value_is_returned_with_its_type(
    read: Reader, value: str, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTS_X", value)
    result = read()
    assert (result, type(result)) == (expected, type(expected))


def test_password_of_a_bad_address_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTS_X", "mysql://admin:topsecret@host/db")
    with pytest.raises(SettingError, match=r"mysql://\.\.\.@host/db") as caught:
        read_url()
    assert "topsecret" not in str(caught.value)


def test_secret_is_read_from_variable_or_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TTS_X", "one")
    (tmp_path / "secret").write_text("two\n")
    monkeypatch.setenv("TTS_Y_FILE", str(tmp_path / "secret"))
    assert env_secret("TTS_X", help="A secret.") == "one"
    assert env_secret("TTS_Y", help="A secret.") == "two"
    assert env_secret("TTS_Z", help="A secret.") is None


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe"])
def test_secret_file_without_a_secret_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    monkeypatch.setenv("TTS_X_FILE", str(tmp_path / "secret"))
    with pytest.raises(SettingError, match=r"TTS_X_FILE=.*: expected a (readable )?file"):
        env_secret("TTS_X", help="A secret.")


def test_secret_given_twice_is_refused_without_being_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTS_X", "topsecret")
    monkeypatch.setenv("TTS_X_FILE", "/some/file")
    with pytest.raises(SettingError) as caught:
        env_secret("TTS_X", help="A secret.")
    assert str(caught.value) == "TTS_X and TTS_X_FILE are both set: keep one of them"


def test_environment_wins_over_env_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("TTS_X=5\nTTS_Y=6\n")
    monkeypatch.setenv("TTS_X", "7")
    env.load_dotenv(tmp_path / ".env")
    assert read_int() == 7
    assert env_int("TTS_Y", default=1, low=1, high=9, help="A count.") == 6


def test_other_env_file_named_has_to_be_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    env.load_dotenv(tmp_path / ".env")  # is not there
    assert read_int() == 4
    (tmp_path / "other").write_text("TTS_X=9\n")
    monkeypatch.setenv("TTS_ENV_FILE", str(tmp_path / "other"))
    env.load_dotenv(tmp_path / ".env")
    assert read_int() == 9
    monkeypatch.setenv("TTS_ENV_FILE", str(tmp_path / "missing"))
    with pytest.raises(SettingError, match=r"TTS_ENV_FILE=.*expected an existing file"):
        env.load_dotenv(tmp_path / ".env")


@pytest.mark.parametrize("name", ["TTS_TORCH", "TTS_PYTHON", "TTS_ENV_FILE"])
def test_name_needed_before_the_env_file_is_refused_in_it(name: str, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"{name}=cpu\n")
    with pytest.raises(SettingError, match=f"{name} is needed before this file is read"):
        env.load_dotenv(tmp_path / ".env")


def test_unknown_variable_is_told_what_is_near(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text("TTS_QQQQ=1\nOTHER=2\n")
    monkeypatch.setenv("TTS_WORKER_NAM", "8")
    monkeypatch.setenv("TTS_TEST_SOMETHING", "8")
    env.load_dotenv(tmp_path / ".env")
    found = [line for line in env.unknown_variables() if "NAM" in line or "QQQQ" in line]
    assert found == [
        "TTS_QQQQ is set, but this setting does not exist",
        "TTS_WORKER_NAM is set, but this setting does not exist; did you mean TTS_WORKER_NAME?",
    ]


def test_name_with_two_meanings_or_without_the_prefix_is_refused() -> None:
    read_int()
    read_int()
    with pytest.raises(SettingError, match="TTS_X: read in two places"):
        read_float()
    with pytest.raises(SettingError, match="starts with TTS_"):
        env_str("DATABASE_URL", default="", help="Not ours.")


def test_default_is_registered_as_a_person_would_write_it() -> None:
    env_path("TTS_X", default=env.PROJECT_DIR / "data", help="A path.")
    env_str("TTS_Y", default="", default_text="host and role", help="A name.")
    assert (SETTINGS["TTS_X"].default, SETTINGS["TTS_X"].example) == ("data", "data")
    assert (SETTINGS["TTS_Y"].default, SETTINGS["TTS_Y"].example) == ("host and role", "")


def test_register_ignores_names_that_only_look_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"PATH": "", "TTS_TEST_REQUIRE": "1", "TTS_TORCH": "cpu"})
    assert env.unknown_variables() == []


@pytest.mark.parametrize("name", sorted(GONE))
def test_variable_that_is_a_setting_no_more_stops_the_start(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert name not in SETTINGS
    said = f"^{name} is no longer a setting: .+; remove it$"
    (tmp_path / ".env").write_text(f"{name}=1\n")
    with pytest.raises(SettingError, match=said):
        env.load_dotenv(tmp_path / ".env")
    monkeypatch.setenv(name, "1")
    with pytest.raises(SettingError, match=said):
        env.load_dotenv(tmp_path / "none")
    monkeypatch.setenv(name, "")
    env.load_dotenv(tmp_path / "none")


def test_operator_sees_few_settings() -> None:
    # 35 of every installation, and one for each feature of large ones that is off by default.
    files = {f"{name}_FILE" for name in SETTINGS}
    assert len([name for name in SETTINGS if name not in files]) <= 40


def read_file(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / ".env"
    path.write_text(text, encoding="utf-8")
    return read_dotenv(path)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=1", "1"), ("A = 1 ", "1"), ("export A=1", "1"), ("A=", ""), ("A=one two", "one two"),
        ("A=one # two", "one"), ("A=# two", ""), ("A=one#two", "one#two"),
        ("A='one # two'", "one # two"), ('A="one" # two', "one"),
        ("A=redis://:p=x@host/0", "redis://:p=x@host/0"), ("A=grün", "grün"),
    ],
)  # fmt: skip
def test_line_gives_the_value_that_a_shell_would(tmp_path: Path, line: str, value: str) -> None:
    assert read_file(tmp_path, f"# a comment\n\n{line}\n") == {"A": value}


@pytest.mark.parametrize("line", ["A", "=1", "2A=1", "A='one", "A='one' two", "A-B=1"])
def test_line_of_another_form_is_refused_by_number_and_not_shown(tmp_path: Path, line: str) -> None:
    with pytest.raises(SettingError, match=r"\.env, line 2: expected") as caught:
        read_file(tmp_path, f"B=1\n{line}\n")
    assert "one" not in str(caught.value).removesuffix("expected one quoted value")


def test_absent_file_is_empty_and_one_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    assert read_dotenv(tmp_path / ".env") == {}
    with pytest.raises(SettingError, match="line 2: A is set a second time"):
        read_file(tmp_path, "A=1\nA=2\n")
    (tmp_path / ".env").write_bytes(b"A=\xff\n")
    with pytest.raises(SettingError, match="cannot be read"):
        read_dotenv(tmp_path / ".env")
    with pytest.raises(SettingError, match="cannot be read"):
        read_dotenv(tmp_path)
