"""Run a folder of golden vectors against the engine and report every case."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Protocol

import torch

from lab.golden import (
    batched_checks,
    checkpoint_checks,
    codec_checks,
    compiled_checks,
    forward_checks,
    generation_checks,
    streamed_checks,
    text_checks,
)
from lab.golden.case import CPU, CaseResult, Check, GoldenFolder, GoldenFolderError, not_understood
from synth.engine.errors import EngineError
from synth.engine.loading.weights import find_weight_files

PLAIN = "plain"


class ChecksModule(Protocol):
    """Describe what a checks module exposes, see `lab.golden.case`."""

    CHECKS: dict[str, Check]
    COMPANIONS: dict[str, str]


# Which checks each path through the engine has. The plain one has a check for every file; another
# runs again, its own way, those files that it computes differently.
PATHS: dict[str, tuple[ChecksModule, ...]] = {
    PLAIN: (text_checks, forward_checks, generation_checks, checkpoint_checks, codec_checks),
    "streamed": (streamed_checks,),
    "batched": (batched_checks,),
    "compiled": (compiled_checks,),
}
_KNOWN_ROOT = {"README.md", "vectors", "tiny-s2", "tiny-s2-sharded"}
_MAX_FOUND = 100  # characters of a table cell; the JSON form has all of them
_COLUMNS = ("file", "case", "expected", "found", "")


class UnknownPathError(EngineError):
    """There are no checks for a path through the engine of this name."""

    code = "golden_path_unknown"


def run_golden(
    root: Path,
    *,
    report: Callable[[CaseResult], None],
    path: str = PLAIN,
    device: torch.device = CPU,
    leave_out: Collection[str] = (),
) -> tuple[int, int]:
    """Check every file and case of a golden folder; a check that fails or raises stops no other.

    Args:
        report: called with each result as it is found.
        path: the name of a path through the engine, one of `PATHS`.
        device: where the models run.
        leave_out: names of files that are not checked, and not missed.

    Returns:
        The number of cases and how many of them failed.

    Raises:
        GoldenFolderError: the folder is not laid out as golden vectors at all.
        UnknownPathError: there is no path of this name.
    """
    if path not in PATHS:
        raise UnknownPathError(f"There is no path {path!r}; there are {', '.join(PATHS)}.")
    folder = GoldenFolder(root, device)
    for needed in (folder.vectors, folder.checkpoint):
        if not needed.is_dir():
            raise GoldenFolderError(f"{needed} is missing: {root} is no golden folder.")
    results = []
    for result in _all_results(folder, path, leave_out):
        results.append(result)
        report(result)
    return len(results), sum(not result.passed for result in results)


def render_table(results: list[CaseResult]) -> str:
    """Return results as text, one line each, columns aligned."""
    rows = [_COLUMNS, *((r.file, r.case, r.expected, _clip(r.found), _verdict(r)) for r in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _clip(text: str) -> str:
    return text if len(text) <= _MAX_FOUND else f"{text[: _MAX_FOUND - 3]}..."


def _verdict(result: CaseResult) -> str:
    return "pass" if result.passed else "FAIL"


def _all_results(
    folder: GoldenFolder, path: str, leave_out: Collection[str]
) -> Iterator[CaseResult]:
    for name, check in _list_checks(path):
        if name in leave_out:
            continue
        if not _place(folder, name).exists():
            yield CaseResult(name, "", "to be there", "missing", False)
            continue
        yield from _run(folder, name, check)
    if path == PLAIN and not leave_out:  # the others leave files alone on purpose
        yield from _find_unclaimed(folder)


def _place(folder: GoldenFolder, name: str) -> Path:
    """Return where a registered name lies: folders are named from the root, files in vectors/."""
    return folder.root / name if "/" in name else folder.vectors / name


def _list_checks(path: str) -> Iterator[tuple[str, Check]]:
    for module in PATHS[path]:
        yield from module.CHECKS.items()


def _run(folder: GoldenFolder, name: str, check: Check) -> Iterator[CaseResult]:
    """Yield a check's results; an exception becomes a failed case, whatever it is."""
    last = "start"
    try:
        for result in check(folder):
            last = result.case
            yield result
    except Exception as error:  # one broken check must not hide what the others find  # noqa: BLE001
        found = f"{type(error).__name__}: {error}".splitlines()[0]
        yield CaseResult(name, f"after {last}", "no exception", found, False)


def _find_unclaimed(folder: GoldenFolder) -> Iterator[CaseResult]:
    """Yield a failure for every file and key that no check looked at."""
    claimed = {name for name, _ in _list_checks(PLAIN)}
    for module in PATHS[PLAIN]:
        claimed |= set(module.COMPANIONS)
    for entry in sorted(folder.root.iterdir()):
        if entry.name not in _KNOWN_ROOT:
            yield not_understood(entry.name, "")
    for entry in sorted(folder.vectors.iterdir()):
        name = f"vectors/{entry.name}/" if entry.is_dir() else entry.name
        if name not in claimed:
            yield not_understood(name, "")
        elif entry.is_file():
            for key in folder.unread(entry.name):
                yield not_understood(name, key)
    for checkpoint in (folder.checkpoint, folder.sharded):
        yield from _unknown_checkpoint_files(checkpoint)


def _unknown_checkpoint_files(checkpoint: Path) -> Iterator[CaseResult]:
    if not checkpoint.is_dir():
        return  # its own check has reported it
    known = set(checkpoint_checks.KNOWN_CHECKPOINT_FILES)
    known |= {path.name for path in find_weight_files(checkpoint)}
    for file in sorted(checkpoint.iterdir()):
        if file.name not in known:
            yield not_understood(f"{checkpoint.name}/", file.name)
