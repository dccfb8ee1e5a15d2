"""Run the command that a command line names: ours without Django, unless it needs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules

from ttsweb.commands.base import BaseCommand
from ttsweb.configuration.env import PROJECT_DIR, SettingError
from ttsweb.configuration.library import INSTALLED_APPS

FOLDER = "management/commands"
# The commands of the folder `lab`, which an installed package does not have.
LAB_COMMANDS = ("bench", "eval-demo", "fuzz", "torture", "train-demo", "verify-golden")


def run(argv: list[str]) -> None:
    """Run `argv`: a program, a command and its arguments.

    A setting with a bad value is one sentence and not a traceback.
    """
    try:
        _run(argv)
    except SettingError as error:
        sys.exit(f"settings: {error}")


def find_command(name: str) -> BaseCommand | None:
    """Return our command of that name; None for Django's and its libraries'."""
    for app in INSTALLED_APPS:
        package = app.removesuffix(".apps.TtswebConfig")
        if (PROJECT_DIR / package / FOLDER / f"{name}.py").is_file():
            command: BaseCommand = import_module(f"{package}.management.commands.{name}").Command()
            return command
    return None


def find_names() -> dict[str, str]:
    """Return each command's name and the app it is of, which is not imported for that."""
    found = dict.fromkeys(_names_in("django", "core"), "django")
    for app in reversed(INSTALLED_APPS):
        package, *rest = app.removesuffix(".apps.TtswebConfig").split(".")
        found |= dict.fromkeys(_names_in(package, *rest), (rest or [package])[-1])
    return found


def _run(argv: list[str]) -> None:
    program = os.environ.pop("TTSWEB_PROGRAM", "") or Path(argv[0]).name  # as it was typed
    argv = [program, *argv[1:]]
    name = argv[1] if len(argv) > 1 else "help"
    if argv[1:] in (["--help"], ["-h"]):
        name = "help"
    wanted = argv[2] if name == "help" and len(argv) > 2 else name
    names = find_names()
    if (command := find_command(wanted)) is not None:
        if wanted == name:
            command.run_from_argv(argv)
        else:
            command.print_help(program, wanted)
    elif wanted == "help":
        sys.stdout.writelines(f"{line}\n" for line in _list_of(names, program))
    elif wanted == "--commands":
        sys.stdout.writelines(f"{name}\n" for name in sorted(names))
    elif wanted in LAB_COMMANDS:
        sys.exit(f"{wanted} is a command of the source tree: run ./tts {wanted} in a clone of it.")
    elif wanted not in names and wanted not in ("version", "--version"):
        similar = get_close_matches(wanted, names)
        guess = f". Did you mean {similar[0]}?" if similar else ""
        sys.stderr.write(f"Unknown command: {wanted!r}{guess}\nType '{program} help' for usage.\n")
        sys.exit(1)
    else:
        from django.core.management import execute_from_command_line

        from ttsweb import settings  # noqa: F401  # a bad value is told by `run`

        if wanted == name and name in names:
            _read_arguments(argv)
        execute_from_command_line(argv)


def _read_arguments(argv: list[str]) -> None:
    """Exit if a command of a library asks for help or is called wrongly: no app is loaded for it.

    The few commands that import models cannot be read so; Django reads them itself.
    """
    from django.core.exceptions import AppRegistryNotReady, ImproperlyConfigured
    from django.core.management import load_command_class

    packages = ["django.core", *reversed(INSTALLED_APPS)]
    package = next(one for one in packages if argv[1] in _names_in(*one.split(".")))
    try:
        command = load_command_class(package, argv[1])
        # So that an error of the arguments is one sentence; the attribute is not in the stubs.
        setattr(command, "_called_from_command_line", True)  # noqa: B010
        parser = command.create_parser(argv[0], argv[1])
    except (AppRegistryNotReady, ImproperlyConfigured):
        return
    parser.parse_args(argv[2:])


def _names_in(package: str, *rest: str) -> list[str]:
    spec = find_spec(package)
    folders = (spec and spec.submodule_search_locations) or []
    paths = [str(Path(folder, *rest, FOLDER)) for folder in folders]
    return [one.name for one in iter_modules(paths) if not one.ispkg and one.name[0] != "_"]


def _list_of(names: dict[str, str], program: str) -> Iterator[str]:
    yield f"\nType '{program} help <subcommand>' for help on a specific subcommand."
    yield "\nAvailable subcommands:"
    for app in sorted(set(names.values())):
        yield f"\n[{app}]"
        yield from (f"    {name}" for name in sorted(names) if names[name] == app)
