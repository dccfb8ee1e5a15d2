"""Name the models that can be pulled: where they are, at which commit, with which digests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

FISH_AUDIO_LICENCE = "Fish Audio Research License"
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
    licence=FISH_AUDIO_LICENCE,
    digests={"codec.pth": "74fc41c5a7151c6f350af8bd7e5d6e3accfcc7f3dfbfac23afd35af07052bb2f"},
)
SOURCES = {source.name: source for source in (S2_PRO,)}
