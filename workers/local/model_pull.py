"""Pull one model into a folder, from the list of its files to the card that names its licence."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from synth.card import CARD_NAME, CardError, read_card
from ttsweb.commands.base import StepError
from ttsweb.configuration.env import PROJECT_DIR
from workers.local.model_source import (
    Listing,
    ModelSource,
    RemoteFile,
    fetch_listing,
    read_declaration,
    read_listing,
    size_of,
    write_listing,
)

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
            f"{needed / 1e9:.2f} GB must still be written to {folder}, which has {free / 1e9:.2f} "
            f"GB free ({SPARE_BYTES / 1e9:.1f} GB must stay free). Free some space, or give "
            "another folder with --to.",
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
    return size_of(folder / f"{file.path}{PART_SUFFIX}") or 0


@contextmanager
def explain_hub_errors(source: ModelSource, revision: str) -> Iterator[None]:
    """Turn the hub library's errors into StepErrors.

    Raises:
        StepError: offline, gated, access_denied, not_found, hub_error, hub_unreachable or
            disk_error.
    """
    from httpx2 import HTTPError
    from huggingface_hub import errors

    try:
        yield
    except errors.OfflineModeIsEnabled as error:
        raise StepError(
            "offline",
            "HF_HUB_OFFLINE is set, but some files are missing; unset it and run this again.",
        ) from error
    except errors.GatedRepoError as error:
        raise _gated_error(source) from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise StepError(
            "not_found",
            f"The hub has no {source.repo} at {revision}. Either the revision is wrong, or "
            "the token in HF_TOKEN is not valid.",
        ) from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403):
            raise _gated_error(source) from error
        raise StepError(
            "hub_error", f"The hub answered {status}. The same command continues the download."
        ) from error
    except HTTPError as error:
        raise StepError(
            "hub_unreachable",
            f"The hub cannot be reached ({type(error).__name__}). Check the network, the "
            "proxy and HF_ENDPOINT; the same command continues the download.",
        ) from error
    except OSError as error:
        raise StepError("disk_error", f"The files cannot be written: {error}.") from error


def _gated_error(source: ModelSource) -> StepError:
    from huggingface_hub import get_token

    if get_token() is None:
        return StepError(
            "gated",
            f"Only people who accepted its terms can download {source.repo}. Sign in at the "
            "hub, accept the terms on the model's page, make an access token with read "
            "permission, and run this again with HF_TOKEN=THE_TOKEN.",
        )
    return StepError(
        "access_denied",
        f"The hub refuses {source.repo} with this token. Accept the model's terms with the "
        "account of the token, or set another token in HF_TOKEN.",
    )


NEEDED_FILES = ("config.json", "tokenizer.json", "codec.pth")


def pull(source: ModelSource, folder: Path, revision: str, say: Callable[[str], None]) -> Listing:
    """Make `folder` hold the model at `revision`; a second call checks what is there.

    Raises:
        StepError: see explain_hub_errors and download; revision_changed or unexpected_files.
    """
    with explain_hub_errors(source, revision), locked(folder):
        known = read_listing(folder)  # what is here if it is of this commit, else the hub's
        is_known = known is not None and known.revision == revision
        listing = known if known and is_known else fetch_listing(source, revision)
        if known and (known.model, known.revision) != (source.name, listing.revision):
            raise StepError(
                "revision_changed",
                f"{folder} contains {known.model} at {known.revision}, but this is "
                f"{source.name} at {listing.revision}. Give another folder with --to.",
            )
        check_listing(source, listing)
        write_listing(folder, listing)
        download(source, listing, folder, say)
        card = folder / CARD_NAME
        if not card.exists():  # name the model and its licence
            named = {"name": source.title, "licence": source.licence, **source.card}
            card.write_text(json.dumps(named, indent=2) + "\n", encoding="utf-8")
    return listing


def check_listing(source: ModelSource, listing: Listing) -> None:
    """Refuse a list that lacks what an engine needs or differs from the digests in this code.

    Raises:
        StepError: unexpected_files or digest_mismatch.
    """
    digests = {file.path: file.digest for file in listing.files}
    lacking = [name for name in NEEDED_FILES if name not in digests]
    if lacking or not any(name.endswith(".safetensors") for name in digests):
        raise StepError(
            "unexpected_files",
            f"{source.repo} at {listing.revision} lacks "
            f"{', '.join(lacking) or 'safetensors'}, so this version cannot load it as a "
            "checkpoint.",
        )
    if listing.revision != source.revision:
        return  # the digests in this code are those of the pinned commit
    for name, digest in source.digests.items():
        if digests.get(name) != digest:
            raise StepError(
                "digest_mismatch",
                f"The hub offers a {name} with the SHA-256 {digests.get(name)}, but that of "
                f"this commit is {digest}. Nothing was downloaded.",
            )


BUILT_IN = PROJECT_DIR / "synth" / "demo"


def line_of(model: dict[str, Any]) -> str:
    """Return one line for a person; the chosen model has an asterisk."""
    facts = [model["state"], model["licence"]]
    if model["revision"]:
        facts.append(f"at {model['revision'][:12]}")
    if model["declared_use"]:
        facts.append(f"declared: {model['declared_use']}")
    mark = "*" if model["is_chosen"] else " "
    return f"{mark} {model['name']}  {', '.join(facts)}  {model['folder']}"


def find_models(pulled: Path, checkpoint: Path) -> list[dict[str, Any]]:
    """Return the built-in model, those in the folder `pulled`, and TTS_CHECKPOINT's.

    The state of each is whole, incomplete, or missing (no config.json).
    """
    folders = [BUILT_IN]
    if pulled.is_dir():
        folders += sorted(path for path in pulled.iterdir() if path.is_dir())
    chosen = checkpoint.resolve()
    if chosen not in [folder.resolve() for folder in folders]:
        folders.append(checkpoint)
    return [_inspect_model(folder, is_chosen=folder.resolve() == chosen) for folder in folders]


def _inspect_model(folder: Path, *, is_chosen: bool) -> dict[str, Any]:
    try:
        card = read_card(folder)
        name, licence = card.name, card.licence
    except CardError:
        name, licence = folder.name, "card cannot be read"
    try:
        declaration = read_declaration(folder)
        declared = declaration.use if declaration else ""
    except StepError:
        declared = "cannot be read"
    listing = read_listing(folder)
    if listing is not None:
        state = "incomplete" if listing.missing(folder) else "whole"
    else:
        state = "whole" if (folder / "config.json").is_file() else "missing"
    return {
        "name": name,
        "folder": str(folder),
        "state": state,
        "is_chosen": is_chosen,
        "licence": licence,
        "revision": listing.revision if listing else "",
        "declared_use": declared,
    }
