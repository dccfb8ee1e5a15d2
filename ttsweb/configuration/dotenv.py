"""Reader of `.env` files: `KEY=VALUE` lines, nothing else.

Only the form that Docker Compose, systemd and a shell all read alike is accepted, so that one
file means the same thing to each of them: no substitution, no lines that go on below.
"""

import re
from pathlib import Path

from ttsweb.configuration.specs import SettingError

_LINE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=\s*(?P<value>.*)")


def read_dotenv(path: Path) -> dict[str, str]:
    """Return the variables of the file at `path`; an absent file gives none.

    Blank lines and lines that start with `#` are skipped. A value may stand in single or double
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
    """Return `value` without its quotes or its trailing comment."""
    quote = value[:1]
    if quote not in {"'", '"'}:
        return re.split(r"(?:^|\s)#", value, maxsplit=1)[0].strip()
    end = value.find(quote, 1)
    rest = value[end + 1 :].strip()
    if end == -1 or (rest and not rest.startswith("#")):
        raise SettingError(f"{where}: expected one quoted value")
    return value[1:end]
