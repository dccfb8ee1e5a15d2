"""Download the files of a listing, each resumed where it stopped and checked before it counts."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ttsweb.commands.errors import StepError
from workers.model_pull.listing import Listing, RemoteFile
from workers.model_pull.source import ModelSource

LOCK_NAME = ".pull.lock"
PART_SUFFIX = ".part"
SPARE_BYTES = 100_000_000  # what is left free on the disk, for those who write beside us


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one pull alone write into a folder.

    Raises:
        StepError: pull_running.
    """
    with (folder / LOCK_NAME).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StepError(
                "pull_running", f"Another download writes to {folder}; wait until it has ended."
            ) from error
        yield


def check_space(folder: Path, files: list[RemoteFile]) -> None:
    """Refuse a download that the disk cannot hold; what is already there counts.

    Raises:
        StepError: disk_full, with the numbers.
    """
    needed = sum(max(0, file.size - _part_size(folder, file)) for file in files)
    free = shutil.disk_usage(folder).free
    if needed and needed + SPARE_BYTES > free:
        raise StepError(
            "disk_full",
            f"{needed / 1000000000.0:.2f} GB must still be written to {folder}, which has "
            f"{free / 1000000000.0:.2f} GB free ({SPARE_BYTES / 1000000000.0:.1f} GB must "
            "stay free). Free some space, or give another folder with --to.",
        )


def download(
    source: ModelSource, listing: Listing, folder: Path, say: Callable[[str], None]
) -> None:
    """Bring every file of the listing into the folder; one that is there and right stays.

    Raises:
        StepError: disk_full or digest_mismatch.
        OSError: of the hub's library.
    """
    wrong = []
    for file in listing.files:
        target = folder / file.path
        if target.exists():
            say(f"checking {file.path}")
            if file.matches(target):
                continue
        wrong.append(file)
    check_space(folder, wrong)
    for number, file in enumerate(wrong, 1):
        say(f"{file.path}, {file.size / 1e6:,.1f} MB ({number} of {len(wrong)})")
        _fetch(source, listing.revision, file, folder)


def _fetch(source: ModelSource, revision: str, file: RemoteFile, folder: Path) -> None:
    """Write the rest of one file to its part, check the whole, and give it its name."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils._headers import build_hf_headers

    url = hf_hub_url(source.repo, file.path, revision=revision)
    # Lengths and ranges are of the file itself, not of a compressed form of it.
    headers = build_hf_headers() | {"Accept-Encoding": "identity"}
    part = folder / f"{file.path}{PART_SUFFIX}"
    if _part_size(folder, file) > file.size:
        part.unlink()
    with part.open("ab") as opened:
        http_get(
            url,
            opened,
            resume_size=_part_size(folder, file),
            headers=headers,
            expected_size=file.size,
            displayed_filename=file.path,
            tqdm_class=drawn_bar(),
        )
    if not file.matches(part):
        part.unlink()
        raise StepError(
            "digest_mismatch",
            f"The downloaded {file.path} is not the published file (its digest differs) and "
            "was removed. Run this again. If it happens again, a proxy between this machine "
            "and the hub changes files.",
        )
    part.replace(folder / file.path)


def drawn_bar() -> Any:
    """Return the library's progress bar, drawn on a terminal and nowhere else.

    Left to itself the library draws none unless its logger was given a level.
    """
    from huggingface_hub.utils.tqdm import tqdm

    return partial(tqdm, disable=None)


def _part_size(folder: Path, file: RemoteFile) -> int:
    try:
        return (folder / f"{file.path}{PART_SUFFIX}").stat().st_size
    except OSError:
        return 0
