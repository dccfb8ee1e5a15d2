"""Find the account that a command of this machine speaks as, and the key that stands for it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from django.contrib.auth.models import User

from synth.accounts.keys import KeyRejectedError, create_key, find_key, renew_key
from synth.models import ApiKey
from ttsweb.commands.base import StepError
from ttsweb.private_files import FILE_MODE

SCOPES = (ApiKey.Scope.READ, ApiKey.Scope.JOBS)
MAX_NAME_CHARS = 100


def find_account(name: str, option: str) -> User:
    """Return the account of this name, or the only one.

    Args:
        option: what a person names an account with.

    Raises:
        StepError: user_not_found; user_missing, there is none; user_ambiguous, there are several.
    """
    users = User.objects.filter(is_active=True)
    if name:
        user = users.filter(username=name).first()
        if user is None:
            raise StepError("user_not_found", f"There is no active user named {name!r}.")
        return user
    some = list(users.order_by("pk")[:2])
    if not some:
        raise StepError(
            "user_missing", "There is no user who could speak; ./tts createsuperuser makes one."
        )
    if len(some) > 1:
        raise StepError(
            "user_ambiguous",
            f"There are several users. Name the one who speaks with {option}, or give a key of "
            "his in TTS_API_KEY",
        )
    return some[0]


def new_secret(user: User, name: str) -> str:
    """Return a secret of the account's key of this name, which is made where there is none.

    It is one row whatever happens, so that limits which the admin gives it stay; the secret that it
    had opens nothing any more. One that was revoked stays so.
    """
    name = name[:MAX_NAME_CHARS]
    row = ApiKey.objects.filter(user=user, name=name, revoked_at=None).first()
    if row is not None:
        return renew_key(row)
    return create_key(user, name, scopes=SCOPES)[1]


def kept_secret(user: User, name: str, path: Path) -> str:
    """Return the secret that a file keeps, for processes that come and go beside each other.

    One that opens nothing, or is another account's, is replaced.
    """
    with contextlib.suppress(OSError, KeyRejectedError):
        key = path.read_text(encoding="ascii").strip()
        if find_key(key).user_id == user.pk:
            return key
    key = new_secret(user, name)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT, FILE_MODE), "w") as file:
        file.write(key)
    temporary.replace(path)
    return key
