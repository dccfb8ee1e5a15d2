"""Be the base of every command of ours: its arguments are read without Django.

`--help` and wrong arguments end before anything else is loaded. Django is set up by `execute`,
for commands that need it; `call_command` and Django's own runner find what they expect here. What
ends a command is said to a person, or to a program that reads JSON; signals end it cleanly.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from argparse import SUPPRESS, Action, ArgumentParser, HelpFormatter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn, TextIO


class CommandError(Exception):
    """A command cannot go on: its text is for a person, `returncode` for a program.

    `is_formatted` texts are printed as they are, without the word CommandError before them.
    """

    def __init__(self, message: str, *, returncode: int = 1, is_formatted: bool = False) -> None:
        super().__init__(message)
        self.returncode, self.is_formatted = returncode, is_formatted


class UsageError(CommandError):
    """The arguments do not go together; the exit code is 2."""

    def __init__(self, message: str) -> None:
        super().__init__(message, returncode=2)


class StepError(Exception):
    """A step of a command failed: `code` is stable, the text says what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def reporting_errors(stdout: Output, *, as_json: bool) -> Iterator[None]:
    """Turn what ends a command into one line and exit code 1; with JSON also into one object.

    Raises:
        CommandError: `code: sentence`, instead of a StepError or a database's error.
    """
    try:
        yield
    except Exception as error:
        database = sys.modules.get("django.db")  # not loaded, it cannot have failed
        if isinstance(error, StepError):
            code, message = error.code, str(error)
        elif database and isinstance(error, (database.DatabaseError, database.InterfaceError)):
            code, reason = "database_unavailable", str(error).strip()
            message = f"The database cannot be used: {reason}. Run ./tts doctor for details."
            if re.search("no such table|relation .* does not exist", reason):
                message = "The database lacks tables; ./tts demo and ./tts serve make them."
        else:
            raise
        if as_json:
            stdout.write(json.dumps({"error": {"code": code, "message": message}}))
        raise CommandError(f"{code}: {message}") from error


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_INTERRUPTED = 130  # as a shell reports a command that Ctrl-C ended


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as Ctrl-C does, so that its clean-up runs."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    with _handled_by(interrupt):
        yield


@contextmanager
def signals_held() -> Iterator[None]:
    """Let a signal wait for the block's end: for what has to be known of once it is done.

    A second one ends the block at once: the person does not want to wait.
    """
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            raise KeyboardInterrupt

    try:
        with _handled_by(note):
            yield
    finally:
        if came:
            signal.raise_signal(came[0])


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in ENDING}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


_RED, _PLAIN = "\x1b[31;1m", "\x1b[0m"


class Output:
    """A stream to which whole lines are written; what is no line break's end gets one."""

    def __init__(self, stream: TextIO, style: Callable[[str], str] = str) -> None:
        self._stream, self.style = stream, style

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(
        self, text: str = "", style: Callable[[str], str] | None = None, ending: str = "\n"
    ) -> None:
        line = text if text.endswith(ending) else text + ending
        self._stream.write((style or self.style)(line))


class CommandParser(ArgumentParser):
    """A parser whose error is a CommandError when the command is called from code."""

    def __init__(self, *, called_from_command_line: bool = False, **options: Any) -> None:
        self.called_from_command_line = called_from_command_line
        super().__init__(**options)

    def error(self, message: str) -> Any:
        if self.called_from_command_line:
            super().error(message)
        raise CommandError(f"Error: {message}")

    def add_subparsers(self, **options: Any) -> Any:
        parser_class = options.pop("parser_class", CommandParser)
        options["parser_class"] = partial(
            parser_class, called_from_command_line=self.called_from_command_line
        )
        return super().add_subparsers(**options)


class _Version(Action):
    """Print Django's version, which is looked up only when somebody asks for it."""

    def __call__(self, parser: ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version

        print(version("django"))  # noqa: T201
        parser.exit()


Argument = tuple[tuple[str, ...], dict[str, Any]]


def argument(*names: str, **options: Any) -> Argument:
    """Return what a parser's `add_argument` takes."""
    return names, options


def switch(name: str, help_text: str, **options: Any) -> Argument:
    return argument(name, action="store_true", help=help_text, **options)


JSON = switch("--json", "print one JSON object")
# What every command of Django takes, in the same words.
_COMMON: tuple[Argument, ...] = (
    argument(
        "--version",
        action=_Version,
        nargs=0,
        dest=SUPPRESS,
        help="Show program's version number and exit.",
    ),
    argument(
        "-v",
        "--verbosity",
        default=1,
        type=int,
        choices=[0, 1, 2, 3],
        help="Verbosity level; 0=minimal output, 1=normal output, 2=verbose output, "
        "3=very verbose output",
    ),
    argument(
        "--settings",
        help='The Python path to a settings module, e.g. "myproject.settings.main". If this '
        "isn't provided, the DJANGO_SETTINGS_MODULE environment variable will be used.",
    ),
    argument("--pythonpath", help="A directory to add to the Python path."),
    switch("--traceback", "Display a full stack trace on CommandError exceptions."),
    switch("--no-color", "Don't colorize the command output."),
    switch("--force-color", "Force colorization of the command output."),
)
_SKIP_CHECKS = switch("--skip-checks", "Skip system checks.")  # where there are any
_COMMON_NAMES = {names[-1] for names, _ in (*_COMMON, _SKIP_CHECKS)}


class CommonLast(HelpFormatter):
    """List what all commands take after the command's own arguments."""

    def _sorted(self, actions: Iterable[Action]) -> list[Action]:
        return sorted(
            actions, key=lambda action: not _COMMON_NAMES.isdisjoint(action.option_strings)
        )

    def add_usage(
        self, usage: str | None, actions: Iterable[Action], groups: Any, prefix: str | None = None
    ) -> None:
        super().add_usage(usage, self._sorted(actions), groups, prefix)

    def add_arguments(self, actions: Iterable[Action]) -> None:
        super().add_arguments(self._sorted(actions))


class BaseCommand:
    """A command: subclasses declare `help` and `arguments`, and do the work in `handle`.

    A module of a command imports at its top only what its arguments need: standard library and
    modules that load neither Django nor torch. What does the work is named by `work`.

    Attributes:
        work: the `module:function` that `handle` loads and calls with the command and its options.
        needs_django: `execute` sets Django up first.
        requires_system_checks: Django's; an empty one skips them.
    """

    help = ""
    arguments: Sequence[Argument] = ()
    work = ""
    needs_django = True
    requires_system_checks: Sequence[str] | str = "__all__"
    stealth_options: tuple[str, ...] = ()
    base_stealth_options = ("stderr", "stdout")  # `call_command` takes these

    def __init__(self, stdout: TextIO | None = None, stderr: TextIO | None = None) -> None:
        self.stdout = Output(stdout or sys.stdout)
        self.stderr = Output(stderr or sys.stderr)
        self.is_command_line = False
        self._color_errors(is_forced=False)

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the command's own arguments."""
        add_all(parser, self.arguments)

    def handle(self, *args: Any, **options: Any) -> None:
        module, _, function = self.work.partition(":")
        getattr(import_module(module), function)(self, options)

    def create_parser(self, program: str, name: str, **options: Any) -> CommandParser:
        parser = CommandParser(
            prog=f"{program} {name}",
            description=self.help or None,
            called_from_command_line=self.is_command_line,
            **{"formatter_class": CommonLast, **options},
        )
        has_checks = bool(self.needs_django and self.requires_system_checks)
        add_all(parser, (*_COMMON, _SKIP_CHECKS) if has_checks else _COMMON)
        self.add_arguments(parser)
        return parser

    def print_help(self, program: str, name: str) -> None:
        self.create_parser(program, name).print_help()

    def run_from_argv(self, argv: list[str]) -> None:
        """Run as a command line: an expected error is one line and the exit code it names."""
        self.is_command_line = True
        options = vars(self.create_parser(argv[0], argv[1]).parse_args(argv[2:]))
        if options["settings"]:
            os.environ["DJANGO_SETTINGS_MODULE"] = options["settings"]
        if options["pythonpath"]:
            sys.path.insert(0, options["pythonpath"])
        try:
            with reporting_errors(self.stdout, as_json=bool(options.get("json"))):
                self.execute(**options)
        except CommandError as error:
            if options["traceback"]:
                raise
            if error.is_formatted:
                self.stderr.write(str(error), str)
            else:
                self.stderr.write(f"CommandError: {error}")
            sys.exit(error.returncode)
        finally:
            if "django.db" in sys.modules:
                sys.modules["django.db"].connections.close_all()

    def execute(self, *args: Any, **options: Any) -> None:
        """Set Django up where it is needed, look at the installation, and do the work."""
        if options["force_color"] and options["no_color"]:
            raise CommandError("The --no-color and --force-color options can't be used together.")
        if options.get("stdout"):
            self.stdout = Output(options["stdout"])
        if options.get("stderr"):
            self.stderr = Output(options["stderr"])
        if options["no_color"]:
            self.stderr.style = str
        else:
            self._color_errors(is_forced=options["force_color"])
        if self.needs_django:
            import django
            from django.apps import apps

            if not apps.ready:
                django.setup()
            if self.requires_system_checks and not options["skip_checks"]:
                check_system(self.stderr)
        self.handle(*args, **options)

    def _color_errors(self, *, is_forced: bool) -> None:
        is_shown = hasattr(self.stderr, "isatty") and self.stderr.isatty()
        if (is_shown and os.environ.get("DJANGO_COLORS") != "nocolor") or is_forced:
            self.stderr.style = lambda text: f"{_RED}{text}{_PLAIN}"


def add_all(parser: Any, arguments: Iterable[Argument]) -> None:
    """Have a parser, or a group of its arguments, take these."""
    for names, options in arguments:
        parser.add_argument(*names, **options)


_LEFT_OUT = {"admin", "database", "urls"}  # Django leaves out those of the database as well


def check_system(errors: Output) -> None:
    """Run Django's system checks, without those of the pages: a worker would load all of them.

    `./tts check` has them as well.

    Raises:
        CommandError: they found what nothing can run with.
    """
    from django.core.checks.registry import registry
    from django.core.management.base import BaseCommand as DjangoCommand
    from django.core.management.base import SystemCheckError

    tags = sorted(set(registry.tags_available()) - _LEFT_OUT)
    try:
        DjangoCommand(stderr=errors).check(tags=tags)  # type: ignore[arg-type]  # all it needs is there
    except SystemCheckError as error:
        raise CommandError(str(error), is_formatted=True) from error
