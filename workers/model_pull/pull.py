"""Pull one model into a folder, from the list of its files to the card that names its licence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ttsweb.commands.errors import StepError
from ttsweb.pages.card import CARD_NAME
from workers.model_pull.download import download, locked
from workers.model_pull.listing import Listing, fetch_listing, read_listing, write_listing
from workers.model_pull.source import ModelSource


@contextmanager
def told(source: ModelSource, revision: str) -> Iterator[None]:
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
        raise _gated(source) from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise StepError(
            "not_found",
            f"The hub has no {source.repo} at {revision}. Either the revision is wrong, or "
            "the token in HF_TOKEN is not valid.",
        ) from error
    except errors.HfHubHTTPError as error:
        raise _refused(source, error.response.status_code) from error
    except HTTPError as error:
        raise StepError(
            "hub_unreachable",
            f"The hub cannot be reached ({type(error).__name__}). Check the network, the "
            "proxy and HF_ENDPOINT; the same command continues the download.",
        ) from error
    except OSError as error:
        raise StepError("disk_error", f"The files cannot be written: {error}.") from error


def _refused(source: ModelSource, status: int) -> StepError:
    if status in (401, 403):
        return _gated(source)
    return StepError(
        "hub_error",
        f"The hub answered {status}. The same command continues the download.",
    )


def _gated(source: ModelSource) -> StepError:
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
