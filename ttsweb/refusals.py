"""The base of errors that say why something is refused; HTTP, admin and commands each show them."""

from __future__ import annotations


class RefusedError(Exception):
    """Something is refused: a stable code and a sentence.

    Args:
        status: the HTTP status that fits.
        attr: the request field at fault.
        retry_after: seconds after which another try makes sense.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int = 400,
        attr: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.status, self.attr, self.retry_after = code, status, attr, retry_after
