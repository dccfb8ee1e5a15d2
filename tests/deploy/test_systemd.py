"""The systemd units: their form, their commands, how little they may do."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path

import pytest
from django.core.management import get_commands

from tests.sources import PROJECT
from ttsweb.commands.base import BaseCommand
from ttsweb.configuration.env import SETTINGS
from ttsweb.settings import DRAIN_SECONDS

UNITS = sorted((PROJECT / "deploy" / "systemd").glob("*.service"))
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze was found"
)
PYTHON = "/opt/ttsweb/.venv/bin/python /opt/ttsweb/manage.py "
MOST_EXPOSURE = 25  # tenths; systemd calls what is below 5.0 medium or better


def read(path: Path) -> dict[str, dict[str, str]]:
    """Return a unit's sections; of a name that stands there more than once the last value."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment]  # names keep their letters
    parser.read_string(path.read_text("utf-8"))
    return {name: dict(parser[name]) for name in parser.sections()}


@pytest.fixture
def installed(tmp_path: Path) -> list[Path]:
    """The units with this checkout in the place of /opt/ttsweb, and one of each template."""
    found = []
    for path in (PROJECT / "deploy" / "systemd").iterdir():
        name = path.name.replace("@.", "@0.")
        target = tmp_path / name
        target.write_text(path.read_text("utf-8").replace("/opt/ttsweb", str(PROJECT)))
        found.append(target)
    return found


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_command_of_a_unit_is_one_with_arguments_that_it_takes(path: Path) -> None:
    command = read(path)["Service"]["ExecStart"]
    assert command.startswith(PYTHON)
    name, *arguments = command.removeprefix(PYTHON).split()
    module = import_module(f"{get_commands()[name]}.management.commands.{name}")
    made: BaseCommand = module.Command()
    made.create_parser("manage.py", name).parse_args(arguments)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_unit_runs_as_a_user_of_its_own_with_settings_of_ours(path: Path) -> None:
    service = read(path)["Service"]
    assert (service["User"], service["UMask"]) == ("ttsweb", "0077")
    assert (service["NoNewPrivileges"], service["ProtectSystem"]) == ("yes", "strict")
    assert service["CapabilityBoundingSet"] == ""
    named = set(re.findall(r"\bTTS_[A-Z_]+", path.read_text("utf-8")))
    assert named <= set(SETTINGS)
    if service["Type"] == "exec":
        stop, least = int(service["TimeoutStopSec"]), int(DRAIN_SECONDS)
        assert stop > least
        assert (service["KillMode"], service["Restart"]) == ("mixed", "always")


@needs_systemd
def test_systemd_takes_all_units(installed: list[Path]) -> None:
    run = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *installed],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stderr.strip()) == (0, "")


@needs_systemd
def test_units_are_little_exposed(installed: list[Path]) -> None:
    for path in installed:
        if path.suffix != ".service":
            continue
        command = ["systemd-analyze", "security", "--offline=true", "--no-pager"]
        run = subprocess.run(
            [*command, f"--threshold={MOST_EXPOSURE}", path],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert run.returncode == 0, run.stdout.splitlines()[-1]
