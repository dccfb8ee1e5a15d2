"""The laws of the source: who imports whom, and one table for each axis.

Modules form no circle, some rooms import only what a table says, neither web nor engine loads the
other, and nothing loads the lab.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from synth.formats import BOOK_FILES, BOOK_FORMATS, FORMATS, BookFileFormat, Writer
from tests.sources import PRODUCT, PROJECT, parse, paths_of

ENGINE_SIDE = ("torch", "torchaudio", "synth.engine", "workers.process.claiming")
WEB_SIDE = ("django", "celery", "rest_framework", "voices", "ttsweb", "synth.models")

# What each of these rooms may import of the product beside itself. A room that is not here is one
# whose law is only that no circle leads through it.
LAW: dict[str, tuple[str, ...]] = {
    "synth.contract": (),
    "synth.text": ("synth.contract", "ttsweb.refusals"),
    "synth.audio": ("synth.contract", "synth.formats"),
    "synth.books": ("synth.text", "ttsweb.refusals", "ttsweb.zips"),
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
        "workers.bounded_child", "synth.audio", "synth.contract", "synth.formats",
        "ttsweb.storage", "synth.models",
    ),
    "workers.book_files": (
        "workers.audio", "synth.audio", "synth.contract", "synth.formats", "synth.text",
        "synth.books", "synth.jobs.timestamps", "ttsweb.storage",
    ),
}  # fmt: skip


def name_of(path: Path) -> str:
    parts = path.relative_to(PROJECT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_in(name: str, *places: str) -> bool:
    return any(name == place or name.startswith(f"{place}.") for place in places)


@cache
def imports_of(path: Path) -> tuple[tuple[str, bool, bool], ...]:
    """Return each name that a module imports: if for types alone, and if in a function."""
    nodes = parse(path)[1]
    functions = [one for one in nodes if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))]
    for_types = {
        inner
        for node in nodes
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    package = path.relative_to(PROJECT).parts[:-1]
    found = []
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            origin = ".".join((*base, *([node.module] if node.module else [])))
            names = [origin, *(f"{origin}.{alias.name}" for alias in node.names)]
        else:
            continue
        is_hidden = any(one.lineno < node.lineno <= (one.end_lineno or 0) for one in functions)
        found += [(name, node in for_types, is_hidden) for name in names]
    return tuple(found)


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    """Return the product's modules that each imports at any depth, but for its types alone."""
    paths = {name_of(path): path for path in paths_of(*PRODUCT)}

    def targets_of(path: Path) -> Iterator[str]:
        for name, is_for_types, _ in imports_of(path):
            while name and name not in paths:
                name = name.rpartition(".")[0]
            if name and not is_for_types:
                yield name

    return {name: set(targets_of(path)) - {name} for name, path in paths.items()}


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
    inside = [name for name in graph if is_in(name, room)]
    assert inside, "the room has moved: mend the table"
    trespasses = [
        f"{name} imports {target}"
        for name in inside
        for target in sorted(graph[name])
        if "." in target and not is_in(target, room, *LAW[room])  # the top packages are empty
    ]

    assert trespasses == []


# Who may know how requests are read and answers written; what is below refuses by `RefusedError`.
REST = (
    "synth.api", "synth.dialects", "synth.admin", "synth.apps", "synth.urls", "voices.api",
    "voices.admin", "ttsweb.http", "ttsweb.pages", "ttsweb.asgi", "ttsweb.urls",
    "workers.remote.views",
)  # fmt: skip
# Below it, and not without: it reads a manifest as the API does.
REST_EXCEPTIONS = {"ttsweb.commands.render_books"}


def test_rest_is_known_to_the_api_alone(graph: dict[str, set[str]]) -> None:
    frameworks = ("rest_framework", "drf_spectacular", "synth.api", "voices.api")
    knowing = {
        name
        for path in paths_of(*PRODUCT)
        if not is_in(name := name_of(path), *REST)
        and any(is_in(target, *frameworks) for target, *_ in imports_of(path))
    }

    assert knowing == REST_EXCEPTIONS


# Modules that import some of the product inside functions, as these need it before or without it.
HIDDEN: dict[str, tuple[str, ...]] = {
    "before Django's models are loaded": (
        "synth.apps", "synth.management.commands.create_key",
        "synth.management.commands.reencrypt", "ttsweb.apps", "ttsweb.commands.line",
        "ttsweb.commands.render_books", "voices.apps", "workers.management.commands.mcp",
        "workers.management.commands.say",
    ),
    "without torch": (
        "workers.management.commands.convert_codec",
        "workers.process.engine_host",
        "workers.process.worker_process",
    ),
}  # fmt: skip


def test_few_modules_import_inside_functions() -> None:
    hiding = {
        name_of(path)
        for path in paths_of(*PRODUCT)
        for name, _, is_hidden in imports_of(path)
        if is_hidden and is_in(name, *PRODUCT)
    }

    assert hiding - {name for names in HIDDEN.values() for name in names} == set()


@pytest.mark.parametrize(
    ("steps", "absent"),
    [
        (
            [
                "import django; django.setup()", "import ttsweb.urls", "import ttsweb.asgi",
                "from django.contrib import admin; admin.autodiscover()",
                "import workers.management.commands.serve",
                "from django.core.checks import run_checks; run_checks()",
            ],
            ENGINE_SIDE,
        ),
        (["import synth.contract"], (*WEB_SIDE, "torch", "synth.engine")),
        (
            ["import synth.audio.filters", "import synth.audio.writers"],
            (*WEB_SIDE, "torch", "synth.engine"),
        ),
        (
            ["from synth.engine.codec import codec_file, load, streams",
             "from synth.engine import *"],
            WEB_SIDE,
        ),
    ],
    ids=["web", "contract", "audio", "engine"],
)  # fmt: skip
def test_import_stays_on_its_side(
    steps: list[str], absent: tuple[str, ...], clean_env: dict[str, str]
) -> None:
    look = f"print(*[name for name in {absent!r} if name in sys.modules])"
    lines = ["import sys", *(line for step in steps for line in (step, look))]
    run = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], env=clean_env, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert dict(zip(steps, run.stdout.splitlines(), strict=True)) == dict.fromkeys(steps, "")


@pytest.mark.parametrize(
    ("folder", "exception", "forbidden"),
    [
        ("ttsweb", "-", ENGINE_SIDE), ("voices", "-", ENGINE_SIDE),
        ("synth", "synth.engine", ENGINE_SIDE),
        ("synth/engine", "-", (*WEB_SIDE, "workers", "kombu")),
        ("ttsweb", "-", ("workers",)),
        *((folder, "-", ("lab", "tests")) for folder in PRODUCT),
    ],
)  # fmt: skip
def test_no_module_of_a_folder_imports_what_is_behind_its_walls(
    folder: str, exception: str, forbidden: tuple[str, ...]
) -> None:
    trespasses = [
        f"{name_of(path)} imports {name}"
        for path in paths_of(folder)
        if not is_in(name_of(path), exception)
        for name, *_ in imports_of(path)
        if is_in(name, *forbidden)
    ]
    assert trespasses == []


def test_text_and_contract_import_the_standard_library_and_named_packages_alone() -> None:
    allowed = {*sys.stdlib_module_names, "numpy", "regex", "sentencex", "unicode_rbnf"}
    foreign = [
        f"{name_of(path)} imports {name}"
        for path in (*paths_of("synth/text"), PROJECT / "synth" / "contract.py")
        for name, *_ in imports_of(path)
        if name.split(".")[0] not in allowed
        and not name.startswith(("synth.text", "synth.contract", "ttsweb.refusals"))
    ]

    assert foreign == []


def sets_up_the_process(call: ast.Call) -> bool:
    """Whether a call changes thread counts, seeds, logging or the environment.

    Django's entry point asgi.py names the settings module: that is the custom.
    """
    called = ast.unparse(call.func)
    if called.startswith("os.environ"):
        return not (call.args and ast.unparse(call.args[0]) == "'DJANGO_SETTINGS_MODULE'")
    setters = ("set_num_threads", "set_default_dtype", "manual_seed", "putenv", "basicConfig")
    return called.split(".")[-1] in setters


def test_no_module_sets_up_the_process_when_it_is_imported() -> None:
    found = [
        f"{name_of(path)}: {ast.unparse(statement)}"
        for path in paths_of(*PRODUCT)
        for statement in parse(path)[0].body
        if isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and sets_up_the_process(statement.value)
    ]

    assert found == []


def test_name_of_a_format_stands_in_one_source_file() -> None:
    found = [
        name_of(path)
        for path in paths_of(*PRODUCT)
        if any(isinstance(one, ast.Constant) and one.value == "opus" for one in parse(path)[1])
    ]
    # What strangers upload is decoded by codecs chosen one by one, whatever files we write.
    assert found == ["synth.formats", "workers.audio.clip_child"]
    assert get_args(BookFileFormat) == tuple(BOOK_FILES)  # type checkers know them


@pytest.mark.parametrize("name", BOOK_FORMATS)
def test_each_row_says_how_its_files_are_written(name: str) -> None:
    form = BOOK_FORMATS[name]
    assert form.name == name
    assert bool(form.container and form.codec) or form.writer != Writer.CODEC
    assert (form.spliced_from in FORMATS) == (form.writer == Writer.SPLICED)
    rates = form.bit_rates
    assert rates is None or rates.low <= rates.usual <= rates.high
