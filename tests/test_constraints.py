"""constraints.txt pins everything that ./tts installs, and what is installed obeys it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.sources import PROJECT

PYTHON_VERSIONS = ("3.11", "3.12", "3.13", "3.14")


LINES = (PROJECT / "constraints.txt").read_text(encoding="utf-8").splitlines()
CONSTRAINTS = [Requirement(line) for line in LINES if line and not line.startswith("#")]
PINS: dict[str, Requirement] = {canonicalize_name(pin.name): pin for pin in CONSTRAINTS}


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


def test_every_line_pins_one_version_of_one_package_without_a_local_part() -> None:
    pattern = re.compile(r"==[0-9][0-9A-Za-z.]*")
    assert [str(pin) for pin in CONSTRAINTS if not pattern.fullmatch(str(pin.specifier))] == []
    assert len(PINS) == len(CONSTRAINTS)


@pytest.mark.parametrize("extra", read_dependencies())
def test_every_dependency_is_pinned_on_every_python_to_a_version_that_it_admits(extra: str) -> None:
    for dependency in read_dependencies()[extra]:
        pin = PINS.get(canonicalize_name(dependency.name))
        assert pin is not None, f"{dependency.name} has no pin"
        version = next(iter(pin.specifier)).version
        assert dependency.specifier.contains(version), f"{pin} is not {dependency}"
        for python in PYTHON_VERSIONS:
            environment = {"python_version": python, "python_full_version": f"{python}.0"}
            if dependency.marker is None or dependency.marker.evaluate(environment):  # asked for
                assert pin.marker is None or pin.marker.evaluate(environment), f"{pin} on {python}"


def test_everything_that_is_installed_for_them_is_pinned_to_that_version() -> None:
    installed = sorted(set(installed_closure()))
    wrong = [
        f"{name} {version} is not {PINS.get(name)}"
        for name, version in installed
        if name not in PINS or not PINS[name].specifier.contains(Version(version).public)
    ]
    assert wrong == [], "run ./tts test, which installs by the constraints"


def test_every_pin_has_the_digests_of_its_files_but_those_of_pytorch() -> None:
    """Remedy: lab/make-hashes."""
    text = (PROJECT / "constraints.hashes.txt").read_text(encoding="utf-8")
    digest = r"    --hash=sha256:[0-9a-f]{64}(?: \\)?\n"
    entries = re.findall(rf"^(\S.*?) \\\n((?:{digest})+)", text, re.M)
    assert "".join(f"{pin} \\\n{digests}" for pin, digests in entries) == text  # and nothing else
    hashed = {canonicalize_name(pin.name): pin for pin in (Requirement(one) for one, _ in entries)}

    assert PINS.keys() - hashed.keys() == {"torch", "torchaudio"}
    wrong = [str(pin) for name, pin in hashed.items() if pin.specifier != PINS[name].specifier]
    assert wrong == []
    for name, pin in hashed.items():  # the same on every Python
        for python in PYTHON_VERSIONS:
            environment = {"python_version": python, "python_full_version": f"{python}.0"}
            markers = (pin.marker, PINS[name].marker)
            first, second = (one is None or one.evaluate(environment) for one in markers)
            assert first == second, f"{pin} on {python}"


def test_pip_refuses_a_file_with_another_digest(tmp_path: Path) -> None:
    """A constraint's digest counts for what it is asked for, without a pin of its own."""
    wheel = tmp_path / "tiny_thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        start = "tiny_thing-1.0.dist-info/"
        named = "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n"
        archive.writestr(start + "METADATA", named)
        archive.writestr(start + "WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(start + "RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-index", "--no-deps"]
    for said, code in ((digest, 0), ("0" * 64, 1)):
        constraints = tmp_path / "constraints"
        constraints.write_text(f"tiny-thing==1.0 --hash=sha256:{said}\n")
        where = ["-d", str(tmp_path / said[:4]), "--find-links", str(tmp_path)]
        command = [*pip, *where, "-c", str(constraints), "tiny-thing"]
        assert subprocess.run(command, capture_output=True, check=False).returncode == code


@pytest.mark.advisories
def test_known_faults_of_the_pinned_versions_are_none() -> None:
    """It asks the service of the Python advisories; where none can be reached, it says so."""
    pins = PROJECT / "constraints.hashes.txt"
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--disable-pip",
        "--require-hashes",
        "-r",
        str(pins),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "could not be audited" not in ended.stdout
