"""Show on a terminal how far a command is; write plain lines where there is none."""

from __future__ import annotations

import shutil
from typing import TextIO

LABEL_WIDTH = 11
BAR_WIDTH = 20
_CLEAR_LINE = "\r\x1b[2K"


class Progress:
    """One line per step; on a terminal it is drawn again as the step goes on."""

    def __init__(self, stream: TextIO) -> None:
        """Write to `stream`, usually standard error."""
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._label = ""
        self._drawn = ""

    def begin(self, label: str, text: str) -> None:
        """Start a step and say what is being done."""
        self._label, self._drawn = label, ""
        self._draw(text) if self._is_terminal else self._line(text)

    def update(self, text: str, *, done: int = 0, total: int = 0) -> None:
        """Say how far the step is; with `total`, with a bar. Only a terminal shows it."""
        if self._is_terminal:
            self._draw(f"{_bar(done, total)} {done}/{total}  {text}" if total else text)

    def end(self, text: str) -> None:
        """Finish the step with its result."""
        if self._is_terminal:
            self._stream.write(_CLEAR_LINE)
        self._line(text)
        self._drawn = ""

    def leave(self) -> None:
        """Free the line for other output, when a step was broken off."""
        if self._is_terminal and self._drawn:
            self._stream.write("\n")
            self._stream.flush()
            self._drawn = ""

    def _draw(self, text: str) -> None:
        line = f"{self._label:<{LABEL_WIDTH}} {text}"[: shutil.get_terminal_size().columns - 1]
        if line != self._drawn:
            self._stream.write(f"{_CLEAR_LINE}{line}")
            self._stream.flush()
            self._drawn = line

    def _line(self, text: str) -> None:
        self._stream.write(f"{self._label:<{LABEL_WIDTH}} {text}\n")
        self._stream.flush()


def _bar(done: int, total: int) -> str:
    filled = BAR_WIDTH * min(done, total) // total
    return f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}]"
