"""Encrypt what is secret in the database with the installation's key."""

from __future__ import annotations

import base64
import functools

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

from ttsweb.refusals import RefusedError

_PURPOSE = b"ttsweb: secrets in the database"  # another purpose gives another key


class SecretUnreadableError(RefusedError):
    """A secret was encrypted with a key that this installation does not have now."""


def encrypt(text: str) -> str:
    """Return a secret as the database keeps it: a Fernet token. Nothing stays nothing."""
    return _box().encrypt(text.encode()).decode("ascii") if text else ""


def decrypt(token: str, *, what: str) -> str:
    """Return the secret of a token.

    Args:
        what: begins the error's sentence, such as "The webhook secret".

    Raises:
        SecretUnreadableError: it was made with none of the keys, or is no token.
    """
    if not token:
        return ""
    try:
        return _box().decrypt(token.encode()).decode()
    except InvalidToken as error:
        raise SecretUnreadableError(
            "secret_unreadable",
            f"{what} was encrypted with another TTS_SECRET_KEY. Put that key into "
            "TTS_SECRET_KEY_FALLBACKS; if it is lost, rotate the secret, which makes a new one.",
        ) from error


def reencrypt(token: str, *, what: str) -> str:
    """Return a token of the same secret, made with the current key; errors as `decrypt`."""
    return encrypt(decrypt(token, what=what))


def _box() -> MultiFernet:
    return _box_of(settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)


@functools.lru_cache(maxsize=4)
def _box_of(*keys: str) -> MultiFernet:
    return MultiFernet([Fernet(_derive(key)) for key in keys])


def _derive(secret_key: str) -> bytes:
    """Return a key of 32 bytes; it tells nothing of the one that signs sessions."""
    derived = HKDF(SHA256(), length=32, salt=None, info=_PURPOSE).derive(secret_key.encode())
    return base64.urlsafe_b64encode(derived)
