"""Who may import whom: neither web nor engine loads the other, and nothing loads the lab."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
SETUP = "import django; django.setup(); "
ENGINE_SIDE = ("torch", "torchaudio", "synth.engine", "workers.tasks")
WEB_SIDE = ("django", "celery", "rest_framework", "voices", "ttsweb", "synth.models")


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        (f"{SETUP}import ttsweb.urls", ENGINE_SIDE),
        (f"{SETUP}import ttsweb.asgi", ENGINE_SIDE),
        (f"{SETUP}from django.contrib import admin; admin.autodiscover()", ENGINE_SIDE),
        (f"{SETUP}import workers.management.commands.serve", ENGINE_SIDE),
        (f"{SETUP}from django.core.checks import run_checks; run_checks()", ENGINE_SIDE),
        ("from synth.engine import *", WEB_SIDE),
        ("from synth.engine.codec import fingerprint, load, streams", WEB_SIDE),
        ("import synth.contract", (*WEB_SIDE, "torch", "synth.engine")),
    ],
)
def test_import_stays_on_its_side(
    code: str, absent: tuple[str, ...], clean_env: dict[str, str]
) -> None:
    check = f"{code}\nimport sys\nprint(*[name for name in {absent!r} if name in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", check], env=clean_env, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == ""


def modules_of(folder: str) -> Iterator[Path]:
    """Yield the modules below a folder of the project, without migrations."""
    for path in sorted((PROJECT / folder).rglob("*.py")):
        if "migrations" not in path.parts:
            yield path


def imports_of(path: Path) -> Iterator[str]:
    """Yield the full names that a module imports anywhere, also inside functions."""
    package = path.relative_to(PROJECT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            origin = ".".join((*base, *([node.module] if node.module else [])))
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def trespasses(paths: Iterator[Path], forbidden: tuple[str, ...]) -> list[str]:
    """Return "module imports name" for each import of something forbidden."""
    return [
        f"{path.relative_to(PROJECT)} imports {name}"
        for path in paths
        for name in imports_of(path)
        if any(name == wall or name.startswith(f"{wall}.") for wall in forbidden)
    ]


@pytest.mark.parametrize("folder", ["ttsweb", "voices"])
def test_web_half_never_imports_the_engine_or_its_tasks(folder: str) -> None:
    assert trespasses(modules_of(folder), ENGINE_SIDE) == []


def test_render_app_outside_the_engine_never_imports_it() -> None:
    engine = PROJECT / "synth" / "engine"
    paths = (path for path in modules_of("synth") if engine not in path.parents)
    assert trespasses(paths, ENGINE_SIDE) == []


def test_engine_never_imports_the_web_half() -> None:
    assert trespasses(modules_of("synth/engine"), (*WEB_SIDE, "workers", "kombu")) == []


def test_text_and_contract_import_the_standard_library_and_named_packages_alone() -> None:
    paths = [*modules_of("synth/text"), PROJECT / "synth" / "contract.py"]
    allowed = {*sys.stdlib_module_names, "numpy", "regex", "sentencex", "unicode_rbnf"}
    foreign = [
        f"{path.relative_to(PROJECT)} imports {name}"
        for path in paths
        for name in imports_of(path)
        if name.split(".")[0] not in allowed
        and not name.startswith(("synth.text", "synth.contract", "ttsweb.refusals"))
    ]

    assert foreign == []


def test_workers_never_import_views_or_serializers() -> None:
    walls = tuple(
        f"{app}.{name}" for app in ("voices", "synth") for name in ("views", "serializers")
    )
    assert trespasses(modules_of("workers"), walls) == []


def test_only_the_app_configuration_loads_the_celery_app_in_the_web_half() -> None:
    paths = (path for folder in ("ttsweb", "voices") for path in modules_of(folder))
    others = (path for path in paths if path.name != "apps.py")
    assert trespasses(others, ("workers",)) == []


@pytest.mark.parametrize("folder", ["ttsweb", "voices", "synth", "workers"])
def test_product_never_imports_what_measures_and_trains(folder: str) -> None:
    assert trespasses(modules_of(folder), ("lab", "tests")) == []


def sets_up_the_process(call: ast.Call) -> bool:
    """Whether a call changes thread counts, seeds, logging or the environment.

    Django's two entry points, asgi.py and celery.py, name the settings module: that is the custom.
    """
    called = ast.unparse(call.func)
    if called.startswith("os.environ"):
        return not (call.args and ast.unparse(call.args[0]) == "'DJANGO_SETTINGS_MODULE'")
    setters = ("set_num_threads", "set_default_dtype", "manual_seed", "putenv", "basicConfig")
    return called.split(".")[-1] in setters


def test_no_module_sets_up_the_process_when_it_is_imported() -> None:
    found = [
        f"{path.relative_to(PROJECT)}: {ast.unparse(statement)}"
        for folder in ("ttsweb", "voices", "synth", "workers")
        for path in modules_of(folder)
        for statement in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and sets_up_the_process(statement.value)
    ]

    assert found == []
