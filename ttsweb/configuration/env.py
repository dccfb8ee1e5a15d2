"""Typed readers of environment variables and `.env`, and the register of every setting they read.

A value of the wrong type or outside its range raises SettingError with a sentence, so
that the process does not start. An empty value counts as not set: Compose files and service
units pass empty strings for what the operator left out.
"""

import difflib
import math
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

PROJECT_DIR = Path(__file__).resolve().parents[2]
PREFIX = "TTS_"
TEST_PREFIX = "TTS_TEST_"  # read by the test suite alone; never a setting

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_LINE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=\s*(?P<value>.*)")
_from_file: dict[str, str] = {}  # what load_dotenv read; the environment wins over it


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
            name="TTS_PYTHON",
            kind="path",
            default="the newest supported Python",
            allowed="a Python from 3.11 to 3.14",
            help="Interpreter that `./tts` makes `.venv` with.",
            before_start=True,
        ),
        SettingSpec(
            name="TTS_TORCH",
            kind="choice",
            default="the build that fits the machine",
            allowed="`cpu`, `cuda`",
            help="PyTorch build that `./tts` installs.",
            before_start=True,
        ),
        SettingSpec(
            name="TTS_ENV_FILE",
            kind="path",
            default=".env",
            allowed="",
            help="File with settings; variables of the environment take precedence.",
            before_start=True,
        ),
    )
}

# Former settings, and what holds in the place of each.
GONE = {
    "TTS_DEBUG": "pages never show tracebacks; the log has them",
    "TTS_LOG_LEVEL": "lines of INFO and above are written",
    "TTS_CSRF_TRUSTED_ORIGINS": "TTS_BEHIND_HTTPS_PROXY trusts the names in TTS_ALLOWED_HOSTS",
    "TTS_MAX_CLIPS_PER_VOICE": "it is 8",
    "TTS_MIN_REFERENCE_SECONDS": "it is 1",
    "TTS_MAX_REFERENCE_SECONDS": "it is 60",
    "TTS_CLIP_DECODE_SECONDS": "it is 20",
    "TTS_CLIP_DECODE_MEGABYTES": "it is 1024",
    "TTS_MAX_TEXT_CHARS": "it is 200000; send longer texts as books",
    "TTS_MAX_BATCH_ITEMS": "it is 10000",
    "TTS_MAX_BATCH_CHARS": "it is 5000000",
    "TTS_MAX_BOOK_CHARS": "it is 20000000",
    "TTS_MAX_BATCH_BOOKS": "it is 1000",
    "TTS_BATCH_BOOKS_AT_WORK": "it is 16",
    "TTS_BOOK_IMPORT_SECONDS": "it is 300",
    "TTS_BOOK_IMPORT_MEGABYTES": "it is 2048",
    "TTS_MAX_WAIT_SECONDS": "it is 30",
    "TTS_MAX_WAITERS": "it is 200",
    "TTS_MAX_EVENT_STREAMS": "it is 200",
    "TTS_MAX_LIVE_STREAMS": "it is 100",
    "TTS_LIVE_START_SECONDS": "it is 50",
    "TTS_LIVE_KEEP_SECONDS": "it is 600",
    "TTS_MIN_FREE_BYTES": "it is 200000000",
    "TTS_FETCH_SECONDS": "it is 10",
    "TTS_WEBHOOK_HOURS": "it is 24",
    "TTS_MAX_LEXICON_ENTRIES": "it is 5000",
    "TTS_LEXICON_SECONDS": "it is 2",
    "TTS_OPENAI_WAIT_SECONDS": "it is 300",
    "TTS_OPENAI_REPEAT_SECONDS": "it is 600",
    "TTS_OPENAI_MAX_INPUT_CHARS": "it is 4096",
    "TTS_OPENAI_ALIASES": "it is tts-1,tts-1-hd,gpt-4o-mini-tts",
    "TTS_CODEC_ENCODE_DTYPE": "it is float32",
    "TTS_CODEC_DECODE_DTYPE": "it is float32, on a GPU numbers of ten bits",
    "TTS_MAX_CLIP_BYTES": "it is 25000000",
    "TTS_OPENAI_VOICE_ALIASES": "the admin's page “Voice names” says which voice a name means",
    "TTS_RESAMPLER": "use TTS_ENGINE_WITHOUT=torchaudio for the built-in one",
    "TTS_ENGINE_GRAPHS": "use TTS_ENGINE_WITHOUT=graphs to switch them off",
    "TTS_ENGINE_KERNELS": "use TTS_ENGINE_WITHOUT=kernels to switch them off",
    "TTS_PREFIX_CACHE_BYTES": "it is 1000000000, at most a tenth of what the weights leave free",
    "TTS_SPIN_ROUNDS": "use OMP_WAIT_POLICY or GOMP_SPINCOUNT",
    "TTS_TORCH_THREADS": "use OMP_NUM_THREADS",
    "TTS_CODES_CACHE_BYTES": "it is 256000000",
    "TTS_CODES_CACHE_CLIPS": "it is 1000",
    "TTS_WORKER_THREADS": "use --concurrency of ./tts worker",
    "TTS_PUMP_SECONDS": "it follows from TTS_LEASE_SECONDS",
    "TTS_SWEEP_SECONDS": "it follows from TTS_LEASE_SECONDS",
    "TTS_RESEND_SECONDS": "it is TTS_LEASE_SECONDS",
    "TTS_MAX_ATTEMPTS": "it is 3",
    "TTS_QUALITY_RETAKES": "it is 2; a job's max_retakes sets another number",
    "TTS_BOOK_SHORT_RETAKES": "it is 32; a book's max_retakes sets another number",
    "TTS_ASR_MAX_ERROR": "it is 0.35",
    "TTS_ASR_SECONDS": "it is 30",
    "TTS_DRAIN_SECONDS": "it is 20",
    "TTS_STORAGE_DIR": "TTS_STORAGE names the folder, or a bucket",
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


def unknown_variables() -> list[str]:
    """Return a sentence for each `TTS_` variable, set here or in `.env`, that no reader asked for.

    Call it after the settings were read.
    """
    sentences = []
    for name in sorted({*os.environ, *_from_file} - set(SETTINGS)):
        if not name.startswith(PREFIX) or name.startswith(TEST_PREFIX):
            continue
        nearest = difflib.get_close_matches(name, SETTINGS, n=1)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        sentences.append(f"{name} is set, but this setting does not exist{hint}")
    return sentences


def load_dotenv(path: Path) -> None:
    """Make the variables of the `.env` file at `path` visible to the readers below.

    `TTS_ENV_FILE` names another file, which then has to be there. Replaces what an earlier call
    read. `os.environ` is not changed, and wins.

    Raises:
        SettingError: the file cannot be understood, or sets a name that is needed before
            it is read, such as `TTS_TORCH`; or a variable, here or there, is a setting no more.
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
    for name, instead in GONE.items():
        if _raw(name) is not None:
            raise SettingError(f"{name} is no longer a setting: {instead}; remove it")


def read_dotenv(path: Path) -> dict[str, str]:
    """Return the variables of the file at `path`; an absent file gives none.

    Only `KEY=VALUE` lines, which Docker Compose, systemd and a shell all read alike, so that one
    file means the same thing to each of them: no substitution, no lines that go on below. Blank
    lines and lines that start with `#` are skipped. A value may stand in single or double
    quotes; outside quotes, ` #` starts a comment.

    Raises:
        SettingError: a line has another form, a name comes twice, or the file is there
            and cannot be read. The sentence names file and line, never a value.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: cannot be read: {error}") from error
    variables: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _LINE.fullmatch(stripped)
        if match is None:
            raise SettingError(f"{path}, line {number}: expected NAME=VALUE")
        name = match["name"]
        if name in variables:
            raise SettingError(
                f"{path}, line {number}: {name} is set a second time; keep one of the lines"
            )
        variables[name] = _unquote(match["value"], where=f"{path}, line {number}")
    return variables


def _unquote(value: str, *, where: str) -> str:
    quote = value[:1]
    if quote not in {"'", '"'}:
        return re.split(r"(?:^|\s)#", value, maxsplit=1)[0].strip()
    end = value.find(quote, 1)
    rest = value[end + 1 :].strip()
    if end == -1 or (rest and not rest.startswith("#")):
        raise SettingError(f"{where}: expected one quoted value")
    return value[1:end]


def env_str(
    name: str,
    *,
    default: str,
    help: str,
    choices: Collection[str] | None = None,
    default_text: str | None = None,
) -> str:
    allowed = ", ".join(f"`{choice}`" for choice in choices) if choices else ""
    kind = "choice" if choices else "text"
    value = _read(name, kind, default, allowed, help, default_text)
    if value is None:
        return default
    if choices and value not in choices:
        raise _bad(name, value, f"one of {', '.join(choices)}")
    return value


def env_list(
    name: str, *, default: Sequence[str], help: str, choices: Collection[str] | None = None
) -> list[str]:
    """Read texts separated by commas, with `choices` some of them; blanks around are dropped."""
    allowed = ", ".join(f"`{choice}`" for choice in choices) + "; " if choices else ""
    value = _read(name, "list", ",".join(default), f"{allowed}separated by commas", help, None)
    if value is None:
        return list(default)
    items = [item.strip() for item in value.split(",")]
    if not all(items):
        raise _bad(name, value, "texts separated by single commas")
    if choices and not set(items) <= set(choices):
        raise _bad(name, value, f"some of {', '.join(choices)}, separated by commas")
    return items


def env_int(
    name: str, *, default: int, low: int, high: int, help: str, default_text: str | None = None
) -> int:
    value = _read(name, "integer", str(default), f"{low} to {high}", help, default_text)
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
    value = _read(name, "number", str(default), f"{low} to {high}", help, default_text)
    if value is None:
        return default
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not low <= number <= high:  # false for nan as well
        raise _bad(name, value, f"a number from {low} to {high}")
    return number


def env_bool(name: str, *, default: bool, help: str) -> bool:
    """Read a yes or no: 1, true, yes, on or 0, false, no, off, in any case."""
    value = _read(name, "boolean", str(default).lower(), "`true`, `false`", help, None)
    if value is None:
        return default
    if value.lower() not in _TRUE | _FALSE:
        raise _bad(name, value, "true or false")
    return value.lower() in _TRUE


def env_path(name: str, *, default: Path, help: str, default_text: str | None = None) -> Path:
    """Read a path; `~` is the home folder, a relative one starts at the project's folder.

    Whether something is there is not looked at: that is for the system checks.
    """
    is_inside = default.is_relative_to(PROJECT_DIR)
    shown = default.relative_to(PROJECT_DIR).as_posix() if is_inside else str(default)
    value = _read(name, "path", shown, "", help, default_text)
    if value is None:
        return default
    if "\0" in value:
        raise _bad(name, value, "a path")
    return PROJECT_DIR / Path(value).expanduser()


def env_url(name: str, *, schemes: Sequence[str], help: str, default_text: str) -> str | None:
    """Read an address whose scheme is one of `schemes`; its password is never shown."""
    allowed = ", ".join(f"`{scheme}://`" for scheme in schemes)
    value = _read(name, "URL", "", allowed, help, default_text)
    if value is None:
        return None
    expected = "an address that starts with " + " or ".join(f"{s}://" for s in schemes)
    try:
        parts = urlsplit(value)
        is_good = parts.scheme in schemes and "://" in value and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not is_good:
        raise _bad(name, re.sub(r"(?<=://)[^@]*(?=@)", "...", value), expected)
    return value


def env_secret(name: str, *, help: str, default_text: str | None = None) -> str | None:
    """Read a secret from `name`, or from the file that `name`_FILE names; else None.

    Raises:
        SettingError: both are set, or the file is empty or cannot be read.
    """
    value = _read(name, "secret", "", "", help, default_text)
    file_name = f"{name}_FILE"
    path = _read(file_name, "path", "", "", f"File that holds `{name}`.", None)
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


def _raw(name: str) -> str | None:
    value = os.environ.get(name, "").strip() or _from_file.get(name, "").strip()
    return value or None


def _read(
    name: str, kind: str, default: str, allowed: str, help: str, default_text: str | None
) -> str | None:
    """Enter a setting and return its text; `default_text` stands for a default that says little."""
    if default_text is None:
        register(SettingSpec(name, kind, default, allowed, help, example=default))
    else:
        register(SettingSpec(name, kind, default_text, allowed, help))
    return _raw(name)


def _bad(name: str, value: str, expected: str) -> SettingError:
    return SettingError(f"{name}={value!r}: expected {expected}")
