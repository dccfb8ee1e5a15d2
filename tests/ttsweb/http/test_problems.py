"""The table of HTTP statuses has each code that the domain refuses with, and no other."""

from __future__ import annotations

import ast
from pathlib import Path

from synth.audiobooks.start import PLAN_UNFIT
from synth.batches.entries import _WORDS
from synth.transitions import jobs
from ttsweb.http.problems import STATUSES, status_of
from ttsweb.refusals import RefusedError

PROJECT = Path(__file__).resolve().parents[3]
# Errors of rooms that know nothing of the web: a RefusedError takes over their codes.
CONVERTED = {"TextRejectedError", "PlanEditError", "CreditsError", "RuleError"}
NEVER_OF_A_REQUEST = {
    "placeholder_unknown",  # the serializer turns it into a 400 of its field
    *("clip_no_audio", "clip_not_finite", "clip_rate_unsupported", "clip_silent"),
    *("clip_too_long", "clip_too_many_channels", "clip_undecodable"),  # the worker's child process
}


def raised() -> set[str]:
    """Return the codes and cases that stand as literals where refusals are made."""
    paths = [
        path for top in ("ttsweb", "voices", "synth") for path in (PROJECT / top).rglob("*.py")
    ]
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    makers = {"RefusedError", "_refused", *CONVERTED}
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            makers |= {node.name for base in node.bases if ast.unparse(base) == "RefusedError"}
    found = {PLAN_UNFIT, *jobs.CODES, *(words.too_many for words in _WORDS.values())}
    for node in nodes:
        if isinstance(node, ast.Call) and (name := ast.unparse(node.func).split(".")[-1]) in makers:
            code = node.args[name == "RuleError" :][:1]
            cases = [one.value for one in node.keywords if one.arg == "case"]
            found |= {str(one.value) for one in (*code, *cases) if isinstance(one, ast.Constant)}
    return found - NEVER_OF_A_REQUEST


def test_table_has_the_codes_that_are_raised_and_no_other() -> None:
    assert raised() - STATUSES.keys() == set()
    assert STATUSES.keys() - raised() == set()


def test_case_tells_uses_of_a_code_apart() -> None:
    above = RefusedError("text_too_long", "Too long.")
    of_segment = RefusedError("text_too_long", "Too long.", case="segment_text_too_long")
    assert (status_of(above), status_of(of_segment)) == (413, 400)
    assert status_of(of_segment.at("text", "Shorten it.")) == 400
