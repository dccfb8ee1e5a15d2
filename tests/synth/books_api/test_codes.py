"""Each code that reading, planning, starting or filing a book can end with stands in a guide."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.sources import PROJECT

FOLDERS = (
    "synth/books", "synth/audiobooks", "synth/batches", "synth/api/books", "synth/api/batches",
)  # fmt: skip
FILES = (
    "synth/review.py", "synth/api/review.py",
    "synth/transitions/takes.py", "synth/transitions/book_batches.py",
    "synth/transitions/files.py", "synth/transitions/files.py",
)  # fmt: skip
CODE = re.compile(r"[a-z]+(_[a-z0-9]+)+")
# What is called with a code among its first three arguments, or as `code`.
ERRORS = {
    *("ApiProblem", "BookFileError", "BookRejectedError", "ChangeRefusedError", "CreditsError"),
    *("ErrorDetail", "Gap", "ItemError", "PlanEditError", "Rejected", "RetryRefusedError"),
    *("SubmitRejectedError", "ValidationError", "_refused", "fail_book", "fail_book_file"),
    *("Refusal", "note_failed_start"),
}


def _trees() -> Iterator[ast.AST]:
    paths = [path for folder in FOLDERS for path in (PROJECT / folder).rglob("*.py")]
    paths += [PROJECT / name for name in FILES]
    for folder in ("books", "book_files", "read_along", "mp4"):
        paths += (PROJECT / "workers" / folder).glob("*.py")
    yield from (ast.parse(path.read_text(encoding="utf-8")) for path in sorted(set(paths)))


def _texts(nodes: list[ast.expr]) -> set[str]:
    found = {one.value for one in nodes if isinstance(one, ast.Constant)}
    return {text for text in found if isinstance(text, str) and CODE.fullmatch(text)}


def _codes() -> set[str]:
    """Return the codes that errors are made with, and those that the child that reads names."""
    found: set[str] = set()
    for node in (node for tree in _trees() for node in ast.walk(tree)):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name in ERRORS:
                named = [word.value for word in node.keywords if word.arg == "code"]
                found |= _texts([*node.args[:3], *named])
        elif isinstance(node, ast.Dict):  # {"error": "book_too_deep", …}, or codes with sentences
            keys = [key for key in node.keys if key is not None]
            found |= {text for text in _texts(keys) if text.startswith(("book_", "pdf_"))}
            pairs = zip(node.keys, node.values, strict=True)
            answers = [v for k, v in pairs if isinstance(k, ast.Constant) and k.value == "error"]
            found |= _texts(answers)
    return found - {"book_batch", "custom_id"}  # fields


def test_codes_of_books_are_those_of_the_guides() -> None:
    guides = [(PROJECT / "docs" / name).read_text("utf-8") for name in ("errors.md", "books.md")]
    rows = [row for guide in guides for row in re.findall(r"^\| (`[^|]+`) \|", guide, re.MULTILINE)]
    answer = {code for row in rows for code in re.findall(r"`([a-z0-9_]+)`", row)}

    raised = _codes()

    assert len(raised) >= 100
    assert "book_too_deep" in raised
    assert sorted(raised - answer) == []
