"""What sentences to people have in common: errors that say why something is refused, and counts.

HTTP, admin and commands each show them.
"""

from __future__ import annotations

from typing import ClassVar, Self

POLL_SECONDS = 2  # after which to ask again for what is being made


class RefusedError(Exception):
    """Something is refused: a stable code and a sentence.

    Args:
        attr: the request field at fault, where it is not the `field` of all errors of this class.
        retry_after: seconds after which another try makes sense.
        case: tells apart uses of one code that HTTP answers with different statuses
            (`ttsweb.http.problems`).
    """

    field: ClassVar[str | None] = None

    def __init__(
        self,
        code: str,
        message: str,
        *,
        attr: str | None = None,
        retry_after: int | None = None,
        case: str = "",
    ) -> None:
        super().__init__(message)
        self.code, self.attr = code, attr or self.field
        self.retry_after, self.case = retry_after, case

    def at(self, attr: str | None, message: str = "") -> Self:
        """Return the same refusal of another request field, with another sentence if one is given.

        Subclasses take the same arguments.
        """
        return type(self)(
            self.code, message or str(self), attr=attr, retry_after=self.retry_after, case=self.case
        )


class SubmitRejectedError(RefusedError):
    """A request to speak is not taken: its text, a voice or an option."""


def counted(number: int, noun: str, several: str = "") -> str:
    """Return "1 clip" or "3 clips"; `several` is the plural where it is not the noun with an s."""
    return f"{number} {noun if number == 1 else several or f'{noun}s'}"
