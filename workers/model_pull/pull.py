"""Pull one model into a folder, from the list of its files to the card that names its licence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from ttsweb.commands.errors import StepError
from ttsweb.pages.card import CARD_NAME
from workers.model_pull.download import download, locked
from workers.model_pull.hub_errors import told
from workers.model_pull.listing import Listing, fetch_listing, read_listing, write_listing
from workers.model_pull.source import ModelSource

NEEDED_FILES = ("config.json", "tokenizer.json", "codec.pth")


def pull(source: ModelSource, folder: Path, revision: str, say: Callable[[str], None]) -> Listing:
    """Make `folder` hold the model at `revision`; a second call checks what is there.

    Raises:
        StepError: see hub_errors.told and download; revision_changed or unexpected_files.
    """
    with told(source, revision), locked(folder):
        listing = _listing(source, folder, revision)
        check_listing(source, listing)
        write_listing(folder, listing)
        download(source, listing, folder, say)
        _write_card(source, folder)
    return listing


def _listing(source: ModelSource, folder: Path, revision: str) -> Listing:
    """Return the list of files: the one in the folder if it is of this commit, else the hub's."""
    known = read_listing(folder)
    if known is None:
        return fetch_listing(source, revision)
    listing = known if known.revision == revision else fetch_listing(source, revision)
    if (known.model, known.revision) != (source.name, listing.revision):
        raise StepError(
            "revision_changed",
            f"{folder} contains {known.model} at {known.revision}, but this is "
            f"{source.name} at {listing.revision}. Give another folder with --to.",
        )
    return listing


def check_listing(source: ModelSource, listing: Listing) -> None:
    """Refuse a list that lacks what an engine needs or differs from the digests in this code.

    Raises:
        StepError: unexpected_files or digest_mismatch.
    """
    digests = {file.path: file.digest for file in listing.files}
    lacking = [
        name for name in ("config.json", "tokenizer.json", "codec.pth") if name not in digests
    ]
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


def _write_card(source: ModelSource, folder: Path) -> None:
    """Name the model and its licence, unless a card is there."""
    path = folder / CARD_NAME
    if not path.exists():
        card = {"name": source.title, "licence": source.licence}
        path.write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
