"""Keep finished chapter encodes by what they are made of, so that only what changed is encoded."""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from workers.book_files.publishing import published

_KEY = re.compile(r"[0-9a-f]{64}")
_UNFINISHED_SECONDS = 86_400


class EncodeCache:
    """Keep files and their facts in a folder, least recently used out first.

    Entries appear whole: the facts are written last, and an entry without them does not count.
    """

    def __init__(self, folder: Path, *, max_bytes: int = 20 * 2**30) -> None:
        """Prepare; `trim` brings the folder below `max_bytes`."""
        self._folder, self._max_bytes = folder, max_bytes
        self._in_use: set[str] = set()

    def path(self, key: str) -> Path:
        """Return where the file of a key lies, or is to be published.

        Raises:
            ValueError: the key is no sha256 in hex.
        """
        if not _KEY.fullmatch(key):
            raise ValueError(f"no key of an encode: {key!r}")
        return self._folder / key[:2] / key

    def facts(self, key: str) -> dict[str, Any] | None:
        """Return the facts of a finished encode; None where there is none, or it is damaged."""
        path = self.path(key)
        try:
            facts: dict[str, Any] = json.loads(path.with_suffix(".json").read_text())
            if path.stat().st_size != facts["size_bytes"]:
                return None
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        path.with_suffix(".json").touch()
        self._in_use.add(key)
        return facts

    def finish(self, key: str, facts: dict[str, Any]) -> dict[str, Any]:
        """Complete an entry whose file was published, and return its facts.

        Raises:
            OSError: the disk is full.
        """
        path = self.path(key)
        facts = {**facts, "size_bytes": path.stat().st_size}
        with published(path.with_suffix(".json")) as temporary:
            temporary.write_text(json.dumps(facts))
        self._in_use.add(key)
        return facts

    def trim(self) -> None:
        """Remove the entries used longest ago, but none that this object has handed out.

        Files that a killed process left without facts go after a day.
        """
        rows = []
        oldest = time.time() - _UNFINISHED_SECONDS
        for path in self._folder.glob("*/*"):
            is_finished = path.suffix or path.with_suffix(".json").exists()
            with suppress(FileNotFoundError):  # somebody else removes it in this moment
                if not is_finished and path.stat().st_mtime < oldest:
                    path.unlink()
        for facts in self._folder.glob("*/*.json"):
            size = facts.with_suffix("").stat().st_size if facts.with_suffix("").exists() else 0
            rows.append((facts.stat().st_mtime_ns, size, facts))
        total = sum(size for _, size, _ in rows)
        for _, size, facts in sorted(rows):
            if total <= self._max_bytes:
                return
            if facts.stem not in self._in_use:
                facts.unlink(missing_ok=True)
                facts.with_suffix("").unlink(missing_ok=True)
                total -= size
