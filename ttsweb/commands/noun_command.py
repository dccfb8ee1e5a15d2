"""A command of one noun, such as `jobs`: what all nouns do alike follows from its tables."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from ttsweb.client import Client
from ttsweb.client.http import WAIT_RETRIES
from ttsweb.commands.base import JSON, Argument, add_all
from ttsweb.commands.base import argument as argument
from ttsweb.commands.base import switch as switch
from ttsweb.commands.remote_command import RemoteCommand
from ttsweb.commands.terminal import BatchBar, BookBars, one_line, table

LISTED = 20
_WIDTH = 200  # of a value that `show` prints

Row = Mapping[str, Any]
# What is printed of a row, by the name it is printed under: its field, or a function of the row.
Cells = Mapping[str, str | Callable[[Any], object]]
Action = tuple[str, Sequence[Argument]]
Actions = Mapping[str, Action]


def action(help_text: str, *arguments: Argument) -> Action:
    return help_text, arguments


follow = partial(switch, "--follow")


def each(help_text: str) -> Action:
    return action(help_text, argument("ids", nargs="+", metavar="id"))


def count(text: str) -> int:
    """Return a number of rows.

    Raises:
        ValueError: it is not positive; argparse prints that.
    """
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


ID = argument("id")
STATUS = argument("--status", help="one or more statuses, separated by commas")
LIMIT = argument("--limit", type=count, default=LISTED, help=f"how many at most ({LISTED})")
OUT = argument("-o", "--output", "--out", dest="out", type=Path)


class NounCommand(RemoteCommand):
    """The rows of one kind at the server.

    An action is done by the method `do_NAME`; one without a method is the client's method of that
    name, called for each id, and the rows that it returns are printed.

    Attributes:
        noun: the client's attribute, such as `jobs`; JSON lists rows under this name as well.
        actions: by name, in the order of the help.
        filters: the arguments of `ls` that the client's `list` takes.
        columns: of the table of rows.
        brief: those columns that an action's rows are printed with, without a head; empty for the
            whole table.
        lines: what `show` prints; an empty value has no line.
    """

    noun: ClassVar[str]
    actions: ClassVar[Actions]
    filters: ClassVar[Sequence[str]] = ()
    columns: ClassVar[Cells]
    brief: ClassVar[Sequence[str]] = ()
    lines: ClassVar[Cells]

    def add_arguments(self, parser: ArgumentParser) -> None:
        parsers = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        for name, (help_text, arguments) in self.actions.items():
            add_all(parsers.add_parser(name, help=help_text), (*arguments, JSON))

    def run(self, client: Client, chosen: Namespace) -> None:
        getattr(self, f"do_{chosen.action}", self.do_each)(client, chosen)

    def do_ls(self, client: Client, chosen: Namespace) -> None:
        rows = self._resource(client).list(**{name: getattr(chosen, name) for name in self.filters})
        self.print_rows(self.noun, islice(rows, getattr(chosen, "limit", None)), chosen)

    def do_show(self, client: Client, chosen: Namespace) -> None:
        self.show(self._resource(client).get(chosen.id), chosen)

    def do_each(self, client: Client, chosen: Namespace) -> None:
        act = getattr(self._resource(client), chosen.action)
        self.print_acted([act(one) for one in chosen.ids], chosen)

    def do_delete(self, client: Client, chosen: Namespace) -> None:
        for one in chosen.ids:
            self._resource(client).delete(one)
        if chosen.json:
            self.tell({"deleted": chosen.ids})

    def show(self, row: Row, chosen: Namespace) -> None:
        if chosen.json:
            self.tell(row)
            return
        for name, cell in self.lines.items():
            value = value_of(cell, row)
            for one in value if isinstance(value, list) else [value]:
                if one != "":
                    self.stdout.write(f"{name:<12}{one_line(str(one), _WIDTH)}")

    def print_acted(self, rows: Sequence[Any], chosen: Namespace) -> None:
        if chosen.json or not self.brief:
            self.print_rows(self.noun, rows, chosen)
            return
        for row in rows:
            cells = (str(value_of(self.columns[name], row)) for name in self.brief)
            self.stdout.write("  ".join(cells))

    def print_rows(
        self, name: str, rows: Iterable[Any], chosen: Namespace, columns: Cells | None = None
    ) -> None:
        if chosen.json:
            self.tell({name: list(rows)})
        else:
            self.print_table(columns or self.columns, rows)

    def print_table(self, columns: Cells, rows: Iterable[Any]) -> None:
        for line in lines_of_rows(columns, rows):
            self.stdout.write(line)

    def wait(self, client: Client, row: Any, bar: BatchBar | BookBars, line: str) -> Any:
        """Return a row once it has ended; until then Ctrl-C prints the line that comes back."""
        self.come_back = [line]
        client.retries = WAIT_RETRIES
        with bar:
            return self._resource(client).wait(row["id"], on_update=bar.show)

    def _resource(self, client: Client) -> Any:
        return getattr(client, self.noun)


def value_of(cell: str | Callable[[Any], object], row: Row) -> object:
    found = row[cell] if isinstance(cell, str) else cell(row)
    return "" if found is None else found


def lines_of_rows(columns: Cells, rows: Iterable[Any]) -> Iterator[str]:
    cells = [[value_of(cell, row) for cell in columns.values()] for row in rows]
    return table(list(columns), cells)


def target_of(name: str, out: Path | None, *, is_file: bool) -> Path:
    """Return where a file goes: to `out`, or below it unless that is a file's name."""
    if out is None:
        return Path(name)
    return out if is_file and not out.is_dir() else out / name


def end_of(noun: str, row: Row) -> tuple[str, str]:
    """Return code and sentence of a row that has not ended well."""
    if row["error_code"]:
        return row["error_code"], row["error_message"]
    return f"{noun}_{row['status']}", f"The {noun} {row['id']} is {row['status']}."


def moment_of(name: str) -> Callable[[Row], str]:
    return lambda row: (row[name] or "")[:19].replace("T", " ")


def share_of(row: Row) -> str:
    return f"{row['progress']['share']:.0%}" if row["progress"] is not None else ""


def counts_of(row: Row) -> str:
    return ", ".join(f"{number} {name}" for name, number in row["counts"].items() if number)


def seconds_of(row: Row) -> object:
    return round(row["audio_seconds"], 1) or ""


def error_of(row: Row) -> str:
    return f"{row['error_code']}: {row['error_message']}" if row["error_code"] else ""
