"""List the files of a published model, and remember the list in the folder they are pulled to."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workers.model_pull.source import ModelSource

FILE_NAME = ".pulled.json"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """Hold one file: its length in bytes, and its SHA-256 or, of a small one, its git object id."""

    path: str
    size: int
    digest: str

    def matches(self, path: Path) -> bool:
        """Say whether a local file has this content; reads all of it if the length is right."""
        try:
            return path.stat().st_size == self.size and self._digest_of(path) == self.digest
        except OSError:
            return False

    def _digest_of(self, path: Path) -> str:
        is_git = len(self.digest) == 40
        digest = hashlib.sha1(usedforsecurity=False) if is_git else hashlib.sha256()
        if is_git:  # git hashes a header before the content
            digest.update(f"blob {self.size}\0".encode())
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Listing:
    """Hold the wanted files of one commit of a model."""

    model: str
    revision: str
    files: tuple[RemoteFile, ...]

    def missing(self, folder: Path) -> list[RemoteFile]:
        """Return the files that a folder lacks, by name and length alone."""
        return [file for file in self.files if _size(folder / file.path) != file.size]


def fetch_listing(source: ModelSource, revision: str) -> Listing:
    """Ask the publisher for the commit that a revision is, and for its files.

    Raises:
        OSError: of the hub's library; `hub_errors.told` turns it into sentences.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    api = HfApi()
    commit = revision
    if revision != source.revision:
        commit = api.model_info(source.repo, revision=revision).sha or revision
    entries = api.list_repo_tree(source.repo, revision=commit, recursive=True)
    files = tuple(
        RemoteFile(entry.path, entry.size, entry.lfs.sha256 if entry.lfs else entry.blob_id)
        for entry in entries
        if isinstance(entry, RepoFile) and source.wants(entry.path)
    )
    return Listing(source.name, commit, files)


def read_listing(folder: Path) -> Listing | None:
    """Return what was pulled into a folder; None where nothing was, or the file is damaged."""
    try:
        given: dict[str, Any] = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
        files = tuple(
            RemoteFile(Path(entry["path"]).name, int(entry["size"]), str(entry["digest"]))
            for entry in given["files"]
        )
        return Listing(str(given["model"]), str(given["revision"]), files)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None  # it is asked for again


def write_listing(folder: Path, listing: Listing) -> None:
    """Remember what is being pulled into a folder."""
    part = folder / f"{FILE_NAME}.part"
    part.write_text(json.dumps(asdict(listing), indent=1) + "\n", encoding="utf-8")
    part.replace(folder / FILE_NAME)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
