"""Typed readers of environment variables, and the register of every setting they read.

A value of the wrong type or outside its range raises SettingError with a sentence, so
that the process does not start. An empty value counts as not set: Compose files and service
units pass empty strings for what the operator left out.
"""

import math
import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import overload
from urllib.parse import urlsplit

from ttsweb.configuration.dotenv import read_dotenv
from ttsweb.configuration.specs import SETTINGS, SettingError, SettingSpec, register, unknown_names

__all__ = [
    "SETTINGS",
    "SettingError",
    "SettingSpec",
    "env_bool",
    "env_float",
    "env_int",
    "env_list",
    "env_path",
    "env_secret",
    "env_str",
    "env_url",
    "load_dotenv",
    "unknown_variables",
]

PROJECT_DIR = Path(__file__).resolve().parents[2]

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_from_file: dict[str, str] = {}  # what load_dotenv read; the environment wins over it


def load_dotenv(path: Path) -> None:
    """Make the variables of the `.env` file at `path` visible to the readers below.

    `TTS_ENV_FILE` names another file, which then has to be there. Replaces what an earlier call
    read. `os.environ` is not changed, and wins.

    Raises:
        SettingError: the file cannot be understood, or sets a name that is needed before
            it is read, such as `TTS_TORCH`.
    """
    if named := os.environ.get("TTS_ENV_FILE", "").strip():
        path = PROJECT_DIR / Path(named).expanduser()
        if not path.exists():
            raise _bad("TTS_ENV_FILE", named, "an existing file")
    variables = read_dotenv(path)
    for name in variables:
        if name in SETTINGS and SETTINGS[name].before_start:
            raise SettingError(
                f"{path}: {name} is needed before this file is read; set it in the "
                "environment instead"
            )
    _from_file.clear()
    _from_file.update(variables)


@overload
def env_str(
    name: str,
    *,
    default: str,
    help: str,
    choices: Collection[str] | None = None,
    default_text: str | None = None,
) -> str: ...
@overload
def env_str(
    name: str,
    *,
    default: None,
    help: str,
    choices: Collection[str] | None = None,
    default_text: str | None = None,
) -> str | None: ...
def env_str(
    name: str,
    *,
    default: str | None,
    help: str,
    choices: Collection[str] | None = None,
    default_text: str | None = None,
) -> str | None:
    """Read a text; with `choices`, one of them, spelled exactly."""
    allowed = ", ".join(f"`{choice}`" for choice in choices) if choices else ""
    kind = "choice" if choices else "text"
    _register(name, kind, default or "", allowed, help, default_text)
    value = _raw(name)
    if value is None:
        return default
    if choices and value not in choices:
        raise _bad(name, value, f"one of {', '.join(choices)}")
    return value


def env_list(
    name: str, *, default: Sequence[str], help: str, default_text: str | None = None
) -> list[str]:
    """Read texts separated by commas; blanks around each are dropped."""
    _register(name, "list", ",".join(default), "separated by commas", help, default_text)
    value = _raw(name)
    if value is None:
        return list(default)
    items = [item.strip() for item in value.split(",")]
    if not all(items):
        raise _bad(name, value, "texts separated by single commas")
    return items


def env_int(
    name: str, *, default: int, low: int, high: int, help: str, default_text: str | None = None
) -> int:
    """Read a whole number from `low` to `high`, both allowed."""
    _register(name, "integer", str(default), f"{low} to {high}", help, default_text)
    value = _raw(name)
    if value is None:
        return default
    # int() would also take 1_000 and digits of other scripts.
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", value) or not low <= int(value) <= high:
        raise _bad(name, value, f"a whole number from {low} to {high}")
    return int(value)


def env_float(
    name: str,
    *,
    default: float,
    low: float,
    high: float,
    help: str,
    default_text: str | None = None,
) -> float:
    """Read a finite number from `low` to `high`, both allowed."""
    _register(name, "number", str(default), f"{low} to {high}", help, default_text)
    value = _raw(name)
    if value is None:
        return default
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not low <= number <= high:  # false for nan as well
        raise _bad(name, value, f"a number from {low} to {high}")
    return number


def env_bool(name: str, *, default: bool, help: str, default_text: str | None = None) -> bool:
    """Read a yes or no: 1, true, yes, on or 0, false, no, off, in any case."""
    _register(name, "boolean", str(default).lower(), "`true`, `false`", help, default_text)
    value = _raw(name)
    if value is None:
        return default
    if value.lower() not in _TRUE | _FALSE:
        raise _bad(name, value, "true or false")
    return value.lower() in _TRUE


@overload
def env_path(name: str, *, default: Path, help: str, default_text: str | None = None) -> Path: ...
@overload
def env_path(
    name: str, *, default: None, help: str, default_text: str | None = None
) -> Path | None: ...
def env_path(
    name: str, *, default: Path | None, help: str, default_text: str | None = None
) -> Path | None:
    """Read a path; `~` is the home folder, a relative one starts at the project's folder.

    Whether something is there is not looked at: that is for the system checks.
    """
    _register(name, "path", _path_text(default), "", help, default_text)
    value = _raw(name)
    if value is None:
        return default
    if "\0" in value:
        raise _bad(name, value, "a path")
    return PROJECT_DIR / Path(value).expanduser()


@overload
def env_url(
    name: str,
    *,
    default: str,
    schemes: Sequence[str],
    help: str,
    default_text: str | None = None,
) -> str: ...
@overload
def env_url(
    name: str,
    *,
    default: None,
    schemes: Sequence[str],
    help: str,
    default_text: str | None = None,
) -> str | None: ...
def env_url(
    name: str,
    *,
    default: str | None,
    schemes: Sequence[str],
    help: str,
    default_text: str | None = None,
) -> str | None:
    """Read an address whose scheme is one of `schemes`; its password is never shown."""
    allowed = ", ".join(f"`{scheme}://`" for scheme in schemes)
    _register(name, "URL", default or "", allowed, help, default_text)
    value = _raw(name)
    if value is None:
        return default
    expected = "an address that starts with " + " or ".join(f"{s}://" for s in schemes)
    try:
        parts = urlsplit(value)
        is_good = parts.scheme in schemes and "://" in value and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not is_good:
        raise _bad(name, _without_password(value), expected)
    return value


def env_secret(name: str, *, help: str, default_text: str | None = None) -> str | None:
    """Read a secret from `name`, or from the file that `name`_FILE names; else None.

    Raises:
        SettingError: both are set, or the file is empty or cannot be read.
    """
    _register(name, "secret", "", "", help, default_text)
    file_name = f"{name}_FILE"
    _register(file_name, "path", "", "", f"File that holds `{name}`.", None)
    value, path = _raw(name), _raw(file_name)
    if path is None:
        return value
    if value is not None:
        raise SettingError(f"{name} and {file_name} are both set: keep one of them")
    try:
        secret = (PROJECT_DIR / Path(path).expanduser()).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise _bad(file_name, path, f"a readable file ({reason})") from error
    if not secret:
        raise _bad(file_name, path, "a file with content")
    return secret


def unknown_variables() -> list[str]:
    """Return a sentence for each `TTS_` variable, set here or in `.env`, that no reader asked for.

    Call it after the settings were read.
    """
    return unknown_names(set(os.environ) | set(_from_file))


def _raw(name: str) -> str | None:
    """Return the text of a variable without blanks around it, or None if not set or empty."""
    value = os.environ.get(name, "").strip() or _from_file.get(name, "").strip()
    return value or None


def _register(
    name: str, kind: str, default: str, allowed: str, help: str, default_text: str | None
) -> None:
    """Enter a setting; `default_text` replaces a default that says little to a person."""
    if default_text is None:
        register(SettingSpec(name, kind, default, allowed, help, example=default))
    else:
        register(SettingSpec(name, kind, default_text, allowed, help))


def _bad(name: str, value: str, expected: str) -> SettingError:
    """Return the error for a value that cannot be used."""
    return SettingError(f"{name}={value!r}: expected {expected}")


def _path_text(path: Path | None) -> str:
    """Return a default path as the documentation shows it: relative to the project's folder."""
    if path is None:
        return ""
    return (
        path.relative_to(PROJECT_DIR).as_posix() if path.is_relative_to(PROJECT_DIR) else str(path)
    )


def _without_password(value: str) -> str:
    """Return an address with what stands between `://` and `@` left out."""
    return re.sub(r"(?<=://)[^@]*(?=@)", "...", value)
