"""The product's source as tests look at it: which modules there are, each parsed once a process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PRODUCT = ("ttsweb", "voices", "synth", "workers")


def paths_of(*folders: str) -> Iterator[Path]:
    """Yield the modules below folders of the project, without migrations."""
    for folder in folders:
        for path in sorted((PROJECT / folder).rglob("*.py")):
            if "migrations" not in path.parts:
                yield path


@cache
def parse(path: Path) -> tuple[ast.Module, tuple[ast.AST, ...]]:
    """Return a module's tree, and all of its nodes."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return tree, tuple(ast.walk(tree))


def name_of(function: ast.expr) -> str:
    """Return the last part of the name of what is called or derived from."""
    return getattr(function, "id", getattr(function, "attr", ""))
