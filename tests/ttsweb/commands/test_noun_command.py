"""The tables of the nouns: actions that can be done, filters, and what is printed of rows."""

from __future__ import annotations

import inspect
import io
import json
from argparse import Namespace
from collections.abc import Iterator
from importlib import import_module
from typing import Any, cast

import pytest

from ttsweb.client import Client
from ttsweb.commands.noun_command import NounCommand

MODULES = ("batches", "book_batches", "books", "jobs", "voices")
COMMANDS: list[type[NounCommand]] = [
    import_module(f"ttsweb.management.commands.{name}").Command for name in MODULES
]
CLIENT = Client("http://127.0.0.1:9", "tts_none")


class Rows:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def list(self) -> Iterator[dict[str, Any]]:
        for number in range(3):
            self.asked.append(f"row {number}")
            yield {"id": f"id-{number}", "size": None}

    def cancel(self, row_id: str) -> dict[str, Any]:
        self.asked.append(f"cancel {row_id}")
        return {"id": row_id, "size": 7}


class Things(NounCommand):
    noun = "things"
    columns = {"id": "id", "size": lambda row: row["size"] or "none"}  # noqa: RUF012
    brief = ("id",)


def run(action: str, **chosen: Any) -> tuple[str, list[str]]:
    output, rows = io.StringIO(), Rows()
    client = cast("Client", Namespace(things=rows))
    Things(stdout=output).run(client, Namespace(action=action, **chosen))
    return output.getvalue(), rows.asked


@pytest.mark.parametrize("command", COMMANDS, ids=MODULES)
def test_each_action_is_a_method_of_the_command_or_of_the_client(
    command: type[NounCommand],
) -> None:
    resource = getattr(CLIENT, command.noun)
    undone = [
        name
        for name in command.actions
        if not hasattr(command, f"do_{name}") and not hasattr(resource, name)
    ]

    assert undone == []
    assert {*command.filters} <= {*inspect.signature(resource.list).parameters}
    assert {*command.brief} <= {*command.columns}


def test_rows_are_listed_as_a_table_or_as_json_up_to_the_limit() -> None:
    table, asked = run("ls", limit=2, json=False)
    printed, _ = run("ls", limit=2, json=True)
    assert table.splitlines() == ["id    size", "id-0  none", "id-1  none"]
    assert asked == ["row 0", "row 1"], "no more is asked for than is printed"
    assert [row["id"] for row in json.loads(printed)["things"]] == ["id-0", "id-1"]


def test_action_is_done_to_each_row_and_printed_in_brief() -> None:
    printed, asked = run("cancel", ids=["a", "b"], json=False)
    assert printed == "a\nb\n"
    assert asked == ["cancel a", "cancel b"]
