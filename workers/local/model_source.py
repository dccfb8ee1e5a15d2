"""Name the models that can be pulled: where they are, at which commit, with which digests."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from ttsweb.commands.base import StepError

WANTED_FILES = ("*.json", "*.safetensors", "*.jinja", "codec.pth", "LICENSE*", "NOTICE*")


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Hold one published model; `digests` are SHA-256 of files at exactly this revision."""

    name: str
    title: str
    repo: str
    revision: str
    licence: str
    digests: Mapping[str, str] = field(default_factory=dict)
    card: Mapping[str, Any] = field(default_factory=dict)  # what its card says beside both names
    wanted: tuple[str, ...] = WANTED_FILES

    def wants(self, path: str) -> bool:
        """Say whether a file of the repository is taken: one at the top that an engine reads."""
        is_plain = "/" not in path and "\\" not in path and not path.startswith(".")
        return is_plain and any(fnmatchcase(path, pattern) for pattern in self.wanted)


S2_PRO = ModelSource(
    name="s2-pro",
    title="Fish Audio S2 Pro",
    repo="fishaudio/s2-pro",
    revision="1de9996b6be38b745688de084d87a5633f714e4e",
    licence="Fish Audio Research License",
    digests={"codec.pth": "74fc41c5a7151c6f350af8bd7e5d6e3accfcc7f3dfbfac23afd35af07052bb2f"},
    card={"history": 2, "segment_chars": 600},
)
SOURCES = {source.name: source for source in (S2_PRO,)}


LISTING_NAME = ".pulled.json"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """Hold one file: its length in bytes, and its SHA-256 or, of a small one, its git object id."""

    path: str
    size: int
    digest: str

    def matches(self, path: Path) -> bool:
        """Say whether a local file has this content; reads all of it if the length is right."""
        begin = hashlib.sha256
        if len(self.digest) == 40:  # git hashes a header before the content
            begin = partial(hashlib.sha1, f"blob {self.size}\0".encode(), usedforsecurity=False)
        try:
            if path.stat().st_size != self.size:
                return False
            with path.open("rb") as file:
                return hashlib.file_digest(file, begin).hexdigest() == self.digest
        except OSError:
            return False


@dataclass(frozen=True, slots=True)
class Listing:
    """Hold the wanted files of one commit of a model."""

    model: str
    revision: str
    files: tuple[RemoteFile, ...]

    def missing(self, folder: Path) -> list[RemoteFile]:
        """Return the files that a folder lacks, by name and length alone."""
        return [file for file in self.files if size_of(folder / file.path) != file.size]


def fetch_listing(source: ModelSource, revision: str) -> Listing:
    """Ask the publisher for the commit that a revision is, and for its files.

    Raises:
        OSError: of the hub's library; `explain_hub_errors` turns it into sentences.
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
        given: dict[str, Any] = json.loads((folder / LISTING_NAME).read_text(encoding="utf-8"))
        files = tuple(
            RemoteFile(Path(entry["path"]).name, int(entry["size"]), str(entry["digest"]))
            for entry in given["files"]
        )
        return Listing(str(given["model"]), str(given["revision"]), files)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None  # it is asked for again


def write_listing(folder: Path, listing: Listing) -> None:
    _write_json(folder / LISTING_NAME, listing, indent=1)


def _write_json(path: Path, value: Any, *, indent: int) -> None:
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(asdict(value), indent=indent) + "\n", encoding="utf-8")
    part.replace(path)


def size_of(path: Path) -> int | None:
    """Return a file's length; None where it is not there."""
    try:
        return path.stat().st_size
    except OSError:
        return None


DECLARATION_NAME = "licence-declaration.json"
USES = {
    "research": "only research or non-commercial use, as the licence allows",
    "written-licence": "use under your own written licence from the publisher",
}


@dataclass(frozen=True, slots=True)
class Declaration:
    """Hold who declared which use (a key of USES), and when (ISO 8601, UTC)."""

    model: str
    licence: str
    use: str
    declared_by: str
    declared_at: str


def read_declaration(folder: Path) -> Declaration | None:
    """Return a folder's declaration, or None where there is none.

    Raises:
        StepError: declaration_invalid, when the file is there and says nothing that can be used.
    """
    path = folder / DECLARATION_NAME
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
        declaration = Declaration(**given)
        if declaration.use not in USES or not all(isinstance(v, str) for v in given.values()):
            raise ValueError("a member has another value")
        return declaration
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise StepError(
            "declaration_invalid",
            f"{path} cannot be read as a declaration. Remove it, run this again and declare "
            "your use anew.",
        ) from error


def write_declaration(folder: Path, source: ModelSource, use: str, declared_by: str) -> Declaration:
    """Store who declares which use of a model now, and return it."""
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    declaration = Declaration(source.name, source.licence, use, declared_by, now)
    _write_json(folder / DECLARATION_NAME, declaration, indent=2)
    return declaration
