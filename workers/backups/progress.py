"""Say how far a long look at objects is, on standard error."""

from __future__ import annotations

import time

from ttsweb.commands.base import Output

SECONDS = 2.0


class Progress:
    """Count steps and write a line every two seconds; on a terminal in one place."""

    def __init__(self, output: Output, *, is_shown: bool = True) -> None:
        self.total = 0  # of steps; 0 where nobody knows
        self._output, self._is_shown = output, is_shown
        self._is_terminal = bool(output.isatty())
        self._next, self._steps, self._is_open = time.monotonic() + SECONDS, 0, False

    def step(self) -> None:
        self._steps += 1
        now = time.monotonic()
        if not self._is_shown or now < self._next:
            return
        self._next = now + SECONDS
        of_total = f" of {self.total}" if self.total else ""
        line = f"{self._steps}{of_total} objects"
        self._output.write(
            f"\r{line}" if self._is_terminal else line, ending="" if self._is_terminal else "\n"
        )
        self._is_open = self._is_terminal

    def end(self) -> None:
        """Leave the line of a terminal."""
        if self._is_open:
            self._output.write("")
            self._is_open = False
