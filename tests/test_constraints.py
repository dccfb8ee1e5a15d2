"""constraints.txt pins everything that ./tts installs, and what is installed obeys it."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

PROJECT = Path(__file__).resolve().parent.parent
PYTHON_VERSIONS = ("3.11", "3.12", "3.13", "3.14")


def read_constraints() -> list[Requirement]:
    lines = (PROJECT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def read_dependencies() -> dict[str, list[Requirement]]:
    """Return what pyproject.toml asks for: extra -> requirements, "" for the base."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {"": project["dependencies"], **project["optional-dependencies"]}
    return {extra: [Requirement(line) for line in lines] for extra, lines in extras.items()}


def installed_closure() -> Iterator[tuple[str, str]]:
    """Yield name and version of each installed package that pyproject.toml leads to."""
    waiting = [(r, "") for group in read_dependencies().values() for r in group]
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in ("", *requirement.extras):
            if (name, wanted) in seen:
                continue
            seen.add((name, wanted))
            try:
                found = importlib.metadata.distribution(name)
            except importlib.metadata.PackageNotFoundError:
                continue  # an extra that this environment does without
            yield name, found.version
            waiting += [(Requirement(line), wanted) for line in found.requires or []]


PINS: dict[str, Requirement] = {canonicalize_name(pin.name): pin for pin in read_constraints()}


def test_every_line_pins_one_version_without_a_local_part() -> None:
    for pin in read_constraints():
        assert re.fullmatch(r"==[0-9][0-9A-Za-z.]*", str(pin.specifier)), str(pin)


def test_no_package_is_pinned_twice() -> None:
    assert len(PINS) == len(read_constraints())


@pytest.mark.parametrize("extra", ["", "engine", "dev", "bench"])
def test_every_dependency_is_pinned_to_a_version_that_it_admits(extra: str) -> None:
    for dependency in read_dependencies()[extra]:
        pin = PINS.get(canonicalize_name(dependency.name))
        assert pin is not None, f"{dependency.name} has no pin"
        version = next(iter(pin.specifier)).version
        assert dependency.specifier.contains(version), f"{pin} is not {dependency}"


@pytest.mark.parametrize("python", PYTHON_VERSIONS)
def test_every_dependency_is_pinned_on_every_python(python: str) -> None:
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    for group in read_dependencies().values():
        for dependency in group:
            if dependency.marker and not dependency.marker.evaluate(environment):
                continue  # not asked for on this system
            marker = PINS[canonicalize_name(dependency.name)].marker
            assert marker is None or marker.evaluate(environment), dependency.name


def test_everything_that_is_installed_for_them_is_pinned() -> None:
    missing = sorted({name for name, _ in installed_closure() if name not in PINS})
    assert missing == []


def test_installed_versions_are_the_pinned_ones() -> None:
    wrong = sorted(
        f"{name} {version} is not {PINS[name]}"
        for name, version in installed_closure()
        if name in PINS and not PINS[name].specifier.contains(Version(version).public)
    )
    assert wrong == [], "run ./tts test, which installs by the constraints"
