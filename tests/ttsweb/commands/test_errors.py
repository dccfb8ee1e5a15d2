"""How a command says why it failed."""

from __future__ import annotations

import io
import json

import pytest
from django.db import OperationalError

from ttsweb.commands.base import CommandError, Output, StepError, reporting_errors


def test_step_error_becomes_code_and_sentence() -> None:
    stream = io.StringIO()
    with (
        pytest.raises(CommandError, match=r"^port_taken: Port 1 is taken\.$"),
        reporting_errors(Output(stream), as_json=False),
    ):
        raise StepError("port_taken", "Port 1 is taken.")
    assert stream.getvalue() == ""


def test_json_gets_the_error_as_its_one_object() -> None:
    stream = io.StringIO()
    with pytest.raises(CommandError), reporting_errors(Output(stream), as_json=True):
        raise StepError("port_taken", "Port 1 is taken.")
    assert json.loads(stream.getvalue()) == {
        "error": {"code": "port_taken", "message": "Port 1 is taken."}
    }


def test_database_that_is_away_is_a_sentence_and_no_traceback() -> None:
    with (
        pytest.raises(CommandError, match=r"^database_unavailable: .*refused.*\./tts doctor"),
        reporting_errors(Output(io.StringIO()), as_json=False),
    ):
        raise OperationalError("connection refused")


def test_other_errors_keep_their_traceback() -> None:
    with pytest.raises(KeyError), reporting_errors(Output(io.StringIO()), as_json=False):
        raise KeyError("a defect")
