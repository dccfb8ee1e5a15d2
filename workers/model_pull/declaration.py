"""Keep what the operator declared about the licence of a folder's weights."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from ttsweb.commands.errors import StepError
from workers.model_pull.source import ModelSource

FILE_NAME = "licence-declaration.json"
USES = {
    "research": "only research or non-commercial use, as the licence allows",
    "written-licence": "use under your own written licence from the publisher",
}


@dataclass(frozen=True, slots=True)
class Declaration:
    """Hold who declared which use (a key of USES), and when (ISO 8601, UTC)."""

    model: str
    licence: str
    use: str
    declared_by: str
    declared_at: str


def read_declaration(folder: Path) -> Declaration | None:
    """Return a folder's declaration, or None where there is none.

    Raises:
        StepError: declaration_invalid, when the file is there and says nothing that can be used.
    """
    path = folder / FILE_NAME
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
        declaration = Declaration(**given)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise _invalid(path) from error
    if declaration.use not in USES or not all(isinstance(v, str) for v in given.values()):
        raise _invalid(path)
    return declaration


def write_declaration(folder: Path, source: ModelSource, use: str, declared_by: str) -> Declaration:
    """Store who declares which use of a model now, and return it."""
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    declaration = Declaration(source.name, source.licence, use, declared_by, now)
    part = folder / f"{FILE_NAME}.part"
    part.write_text(json.dumps(asdict(declaration), indent=2) + "\n", encoding="utf-8")
    part.replace(folder / FILE_NAME)
    return declaration


def _invalid(path: Path) -> StepError:
    return StepError(
        "declaration_invalid",
        f"{path} cannot be read as a declaration. Remove it, run this again and declare "
        "your use anew.",
    )
