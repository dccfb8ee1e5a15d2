"""What commands share: the server, errors, tables of nouns, what a terminal shows."""

from __future__ import annotations

import inspect
import io
import json
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, cast

import pytest
from django.db import OperationalError

from ttsweb import settings
from ttsweb.client import ApiError, Client, ServerUnreachableError
from ttsweb.commands.base import CommandError, Output, StepError, reporting_errors
from ttsweb.commands.noun_command import NounCommand
from ttsweb.commands.remote_command import open_client, reporting_remote_errors, server_url
from ttsweb.commands.terminal import Progress, one_line, table


@pytest.mark.parametrize(
    ("host", "address", "url"),
    [
        ("127.0.0.1", None, "http://127.0.0.1:8123"), ("0.0.0.0", None, "http://127.0.0.1:8123"),
        ("::", None, "http://[::1]:8123"), ("::1", None, "http://[::1]:8123"),
        ("192.168.1.20", None, "http://192.168.1.20:8123"),
        ("localhost", None, "http://localhost:8123"),
        ("::", "https://tts.example.org/speech", "https://tts.example.org/speech"),
    ],
)  # fmt: skip
def test_without_an_address_it_is_the_server_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, host: str, address: str | None, url: str
) -> None:
    for name, value in (("SERVER_URL", address), ("HOST", host), ("PORT", 8123)):
        monkeypatch.setattr(settings, name, value)
    assert server_url() == url


def test_missing_key_names_the_server_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "SERVER_URL", "https://tts.example.org")
    monkeypatch.setattr(settings, "API_KEY", None)
    with pytest.raises(StepError, match=r"https://tts\.example\.org.*create_key") as caught:
        open_client()
    assert caught.value.code == "api_key_missing"


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    ("reporting", "error", "said"),
    [
        (reporting_errors, StepError("port_taken", "Port 1 is taken."),
         r"port_taken: Port 1 is taken\.$"),
        (reporting_errors, OperationalError("connection refused"),
         r"database_unavailable: .*refused.*\./tts doctor"),
        (reporting_remote_errors, ServerUnreachableError("server_unreachable", "No answer."),
         "server_unreachable: .*serve"),
        (reporting_remote_errors, ApiError(409, "job_not_finished", "Not yet."),
         "job_not_finished: .*--follow"),
        (reporting_remote_errors, FileNotFoundError(2, "No such file", "a.wav"),
         r"file_error: a\.wav: No such file\."),
    ],
)  # fmt: skip
def test_error_is_told_with_what_to_do_and_to_programs_as_one_object(
    monkeypatch: pytest.MonkeyPatch,
    reporting: Callable[..., AbstractContextManager[None]],
    error: Exception,
    said: str,
    as_json: bool,
) -> None:
    monkeypatch.setattr(settings, "SERVER_URL", None)
    printed = io.StringIO()
    with (
        pytest.raises(CommandError, match=f"^{said}") as caught,
        reporting(Output(printed), as_json=as_json),
    ):
        raise error
    code, _, message = str(caught.value).partition(": ")
    found = json.loads(printed.getvalue() or "null")
    assert found == ({"error": {"code": code, "message": message}} if as_json else None)


def test_other_errors_keep_their_traceback() -> None:
    with pytest.raises(KeyError), reporting_errors(Output(io.StringIO()), as_json=False):
        raise KeyError("a defect")


MODULES = ("batches", "book_batches", "books", "jobs", "voices")
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


@pytest.mark.parametrize("name", MODULES)
def test_each_action_is_a_method_of_the_command_or_of_the_client(name: str) -> None:
    command: type[NounCommand] = import_module(f"ttsweb.management.commands.{name}").Command
    resource = getattr(CLIENT, command.noun)
    done = {name.removeprefix("do_") for name in dir(command)} | set(dir(resource))
    assert {*command.actions} <= done
    assert {*command.filters} <= {*inspect.signature(resource.list).parameters}
    assert {*command.brief} <= {*command.columns}


def test_rows_are_listed_as_a_table_or_as_json_up_to_the_limit() -> None:
    listed, asked = run("ls", limit=2, json=False)
    printed, _ = run("ls", limit=2, json=True)
    assert listed.splitlines() == ["id    size", "id-0  none", "id-1  none"]
    assert asked == ["row 0", "row 1"], "no more is asked for than is printed"
    assert [row["id"] for row in json.loads(printed)["things"]] == ["id-0", "id-1"]


def test_action_is_done_to_each_row_and_printed_in_brief() -> None:
    assert run("cancel", ids=["a", "b"], json=False) == ("a\nb\n", ["cancel a", "cancel b"])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run_a_step(stream: io.StringIO) -> str:
    progress = Progress(stream)
    progress.begin("Rendering", "12 characters")
    progress.update("1.0 s of audio", done=1, total=4)
    progress.update("2.0 s of audio", done=2, total=4)
    progress.end("4/4 segments")
    return stream.getvalue()


def test_without_a_terminal_there_are_plain_lines_and_no_updates() -> None:
    assert run_a_step(io.StringIO()) == "Rendering   12 characters\nRendering   4/4 segments\n"


def test_terminal_shows_a_bar_and_leaves_the_result() -> None:
    written = run_a_step(Terminal())
    assert "[##########..........] 2/4  2.0 s of audio" in written
    assert written.count("\n") == 1
    assert written.endswith("\x1b[2KRendering   4/4 segments\n")


def test_line_fits_the_terminal_and_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    stream = Terminal()
    progress = Progress(stream)
    progress.begin("Voice", "x" * 200)
    drawn = stream.getvalue()
    assert len(drawn.removeprefix("\r\x1b[2K")) == 29
    progress.update("x" * 200)
    assert stream.getvalue() == drawn
    progress.leave()
    progress.leave()
    assert stream.getvalue() == f"{drawn}\n"


def test_columns_have_one_width_and_lines_no_trailing_blanks() -> None:
    lines = list(table(("id", "name"), [("1", "Ada"), ("100", "")]))
    assert lines == ["id   name", "1    Ada", "100"]
    assert list(table(("id", "name"), [])) == ["id  name"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("two\nlines\t and  blanks ", "two lines and blanks"),
        ("\x1b[31mred\x1b[0m\x07", "[31mred [0m"), ("\u202eright to left", "right to left"),
        ("x" * 61, "x" * 59 + "…"), ("x" * 60, "x" * 60),
    ],
)  # fmt: skip
def test_text_is_one_line_without_what_steers_a_terminal(text: str, line: str) -> None:
    assert one_line(text) == line
