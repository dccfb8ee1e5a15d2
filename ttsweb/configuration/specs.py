"""The register of every setting: what the documentation shows and what a typo is compared with."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

PREFIX = "TTS_"
TEST_PREFIX = "TTS_TEST_"  # read by the test suite alone; never a setting


class SettingError(Exception):
    """A setting has a value that cannot be used; the text names it and what is expected."""


@dataclass(frozen=True)
class SettingSpec:
    """What a reader of the documentation needs to know about one setting.

    `default` and `allowed` are texts for people; an empty `default` means "not set". `example` is
    the default as one would write it into `.env`, or empty where the default is no plain value.
    `before_start` is true for the few names that are needed before `.env` is read.
    """

    name: str
    kind: str
    default: str
    allowed: str
    help: str
    example: str = ""
    before_start: bool = False


SETTINGS: dict[str, SettingSpec] = {
    spec.name: spec
    for spec in (
        SettingSpec(
            "TTS_PYTHON",
            "path",
            "the newest supported Python",
            "a Python from 3.11 to 3.14",
            "Interpreter that `./tts` makes `.venv` with.",
            before_start=True,
        ),
        SettingSpec(
            "TTS_TORCH",
            "choice",
            "the build that fits the machine",
            "`cpu`, `cuda`",
            "PyTorch build that `./tts` installs.",
            before_start=True,
        ),
        SettingSpec(
            "TTS_ENV_FILE",
            "path",
            ".env",
            "",
            "File with settings; variables of the environment take precedence.",
            before_start=True,
        ),
    )
}


def register(spec: SettingSpec) -> None:
    """Enter a setting; to enter the same one again changes nothing.

    Raises:
        SettingError: the name lacks the prefix, or stands for another setting already.
    """
    if not spec.name.startswith(PREFIX):
        raise SettingError(f"{spec.name}: the name of a setting starts with {PREFIX}")
    if SETTINGS.setdefault(spec.name, spec) != spec:
        raise SettingError(f"{spec.name}: read in two places, with two meanings")


def unknown_names(names: Iterable[str]) -> list[str]:
    """Return a sentence for each of `names` that looks like a setting and is none."""
    sentences = []
    for name in sorted(set(names) - set(SETTINGS)):
        if not name.startswith(PREFIX) or name.startswith(TEST_PREFIX):
            continue
        nearest = difflib.get_close_matches(name, SETTINGS, n=1)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        sentences.append(f"{name} is set, but this setting does not exist{hint}")
    return sentences
