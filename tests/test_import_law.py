"""The law of imports: modules form no circle, and some rooms import only what the table says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
PRODUCT = ("ttsweb", "voices", "synth", "workers")

# What each of these rooms may import of the product beside itself. A room that is not here is one
# whose law is only that no circle leads through it.
LAW: dict[str, tuple[str, ...]] = {
    "synth.contract": (),
    "synth.text": ("synth.contract", "ttsweb.counted", "ttsweb.refusals"),
    "synth.books": ("synth.text", "ttsweb.counted", "ttsweb.zips"),
    "synth.engine": ("synth.contract",),
    "synth.signals": (),
    "voices": ("ttsweb",),
    "voices.signals": (),
    "ttsweb.refusals": (),
    "ttsweb.rights": (),
    "ttsweb.leases": (),
    "ttsweb.work": ("ttsweb.leases",),
    "ttsweb.commands.terminal": ("ttsweb",),
    "workers.audio": (
        "workers.bounded_child",
        "synth.contract",
        "synth.formats",
        "synth.made_file",
        "synth.models",
    ),
    "workers.book_files": (
        "workers.audio",
        "synth.contract",
        "synth.formats",
        "synth.text",
        "synth.books",
        "synth.jobs.timestamps",
        "ttsweb.storage",
    ),
}


def modules() -> dict[str, Path]:
    found = {}
    for top in PRODUCT:
        for path in (PROJECT / top).rglob("*.py"):
            parts = path.relative_to(PROJECT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Yield the product's modules that one imports at any depth, but for its types alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        names: list[str] = []
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            while name and name not in known:
                name = name.rpartition(".")[0]
            if name:
                yield name


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    known = modules()
    return {name: set(imported(path, known)) - {name} for name, path in known.items()}


def test_imports_form_no_circle(graph: dict[str, set[str]]) -> None:
    left = {name: set(targets) for name, targets in graph.items()}
    while free := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in free:
            del left[name]
    # What is left leads into a circle; those that nothing left imports only lead there.
    while outer := [name for name in left if not any(name in targets for targets in left.values())]:
        for name in outer:
            del left[name]

    assert {name: sorted(targets & left.keys()) for name, targets in left.items()} == {}


@pytest.mark.parametrize("room", sorted(LAW))
def test_room_imports_what_the_law_allows(room: str, graph: dict[str, set[str]]) -> None:
    def is_in(name: str, place: str) -> bool:
        return name == place or name.startswith(f"{place}.")

    inside = [name for name in graph if is_in(name, room)]
    assert inside, "the room has moved: mend the table"
    trespasses = [
        f"{name} imports {target}"
        for name in inside
        for target in sorted(graph[name])
        if not is_in(target, room)
        and target.partition(".")[0] != target  # the empty top packages
        and target != "synth"
        and not any(is_in(target, allowed) for allowed in LAW[room])
    ]

    assert trespasses == []


# Who may know how requests are read and answers written; what is below refuses by `RefusedError`.
REST = (
    "synth.api",
    "synth.openai",
    "synth.admin",
    "synth.urls",
    "voices.api",
    "voices.admin",
    "voices.urls",
    "ttsweb.http",
    "ttsweb.pages",
    "ttsweb.asgi",
    "ttsweb.urls",
)
# Below it, and not yet without: serializers still describe what these read, write and send.
REST_EXCEPTIONS = {
    "synth.batches.books",
    "synth.batches.entries",
    "synth.batches.events",
    "synth.batches.texts",
    "synth.batches.uploads",
    "synth.webhooks.events",
}


def test_rest_is_known_to_the_api_alone(graph: dict[str, set[str]]) -> None:
    def is_below(name: str) -> bool:
        return not any(name == room or name.startswith(f"{room}.") for room in REST)

    knowing = {
        name
        for name, path in modules().items()
        if is_below(name)
        and (
            any(target.startswith(("synth.api.", "voices.api.")) for target in graph[name])
            or re.search(
                r"^\s*(from|import) (rest_framework|drf_spectacular)", path.read_text(), re.M
            )
        )
    }

    assert knowing == REST_EXCEPTIONS


# Modules that import some of the product inside functions, as these need it before or without it.
HIDDEN = {
    "before Django's models are loaded": (
        "synth.apps",
        "synth.management.commands.create_key",
        "synth.management.commands.reencrypt",
        "ttsweb.apps",
        "ttsweb.commands.line",
        "ttsweb.commands.render_books",
        "voices.apps",
        "workers.management.commands.say",
    ),
    "without torch": (
        "workers.management.commands.convert_codec",
        "workers.process.engine_host",
        "workers.process.worker_process",
    ),
}


def test_few_modules_import_inside_functions() -> None:
    known = modules()
    hiding = {
        name
        for name, path in known.items()
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
        if (isinstance(node, ast.Import) and any(one.name in known for one in node.names))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PRODUCT)
    }

    assert hiding - {name for names in HIDDEN.values() for name in names} == set()
