"""Let people in: the lock-out of those who guess, second factors, identities of other services."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import ipaddress
import secrets
import time
from collections.abc import Mapping
from typing import Any

import pyotp
from django.contrib.auth.models import User
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet

from synth.models import AuditEntry, ExternalIdentity, SecondFactor, SignInTry
from ttsweb import leases
from ttsweb.encryption import reencrypt
from ttsweb.refusals import RefusedError

# Of a name from one address: a stranger elsewhere locks nobody out.
TRIES_OF_NAME = 5
# Of an address with whatever names: many people may sit behind it, and a guesser has many names.
TRIES_OF_ADDRESS = 50
# Of codes of one user from anywhere: who comes so far knows the password.
TRIES_OF_CODE = 10
TRIES_WITHIN = dt.timedelta(minutes=15)
# Of tries that are refused so many are kept, of an address or, of codes, of a user: strangers must
# not fill the disk.
REFUSED_KEPT = 50
UNKNOWN_NAME = "(unknown name)"  # no user's, as names have no spaces


class LockedOutError(RefusedError):
    """Too many tries failed; another one is not even looked at for a while.

    `is_noted` says whether the audit log has this try: of many only the first are in it.
    """

    is_noted = False


class Attempt:
    """A try that is counted before it is judged, so that tries at the same time count each other.

    It stays counted unless `succeed` is called.
    """

    def __init__(self, name: str, address: str, *, is_code: bool = False) -> None:
        """Count the try.

        Args:
            address: of who tries; of IPv6 its network counts, as one host has all of that.
            is_code: it is a code of a second factor, which counts from any address.

        Raises:
            LockedOutError: sign_in_locked.
        """
        place = "" if is_code else _place_of(address)
        digest = hashlib.sha256(f"{is_code}:{name.strip().casefold()}".encode()).hexdigest()
        now = leases.database_now()
        self._row = SignInTry.objects.create(name_digest=digest, address=place, tried_at=now)
        recent = SignInTry.objects.filter(tried_at__gt=now - TRIES_WITHIN)
        counted = recent.filter(address=place, was_refused=False)
        own = counted.filter(name_digest=digest)
        limits = [(own, TRIES_OF_CODE if is_code else TRIES_OF_NAME)]
        if not is_code:
            limits.append((counted, TRIES_OF_ADDRESS))
        for rows, most in limits:
            newest = rows.order_by("-tried_at").values_list("tried_at", flat=True)[: most + 1]
            if len(newest) > most:
                wait = max(1, int((newest[most] + TRIES_WITHIN - now).total_seconds()))
                error = LockedOutError(
                    "sign_in_locked",
                    f"Too many tries failed. Try again in {-(-wait // 60)} minutes.",
                    retry_after=wait,
                )
                refused = recent.filter(address=place, was_refused=True)
                error.is_noted = self._keep_refused(
                    refused.filter(name_digest=digest) if is_code else refused
                )
                raise error
        self._own = own

    def _keep_refused(self, others: QuerySet[SignInTry]) -> bool:
        """Turn the try into a refused one; return whether it is one of the first of them."""
        if others.count() >= REFUSED_KEPT:
            self._row.delete()
            return False
        self._row.was_refused = True
        self._row.save(update_fields=["was_refused"])
        return True

    def succeed(self) -> None:
        self._own.delete()


def name_of_tried(name: str) -> str:
    """Return the name as the audit log may have it: people type passwords into that field."""
    return name if User.objects.filter(username=name).exists() else UNKNOWN_NAME


def _place_of(address: str) -> str:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address[:45]
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


def forget_tries() -> int:
    """Delete tries that count no more; return how many."""
    over = SignInTry.objects.filter(tried_at__lt=leases.database_now() - TRIES_WITHIN)
    return over.delete()[0]


AUDIT_KEPT_FOR = dt.timedelta(days=90)
_ROWS_AT_ONCE = 10_000  # of a round of the sweep: others write meanwhile


def forget_audit() -> int:
    """Delete the oldest of the entries written AUDIT_KEPT_FOR ago; return how many."""
    over = AuditEntry.objects.filter(created_at__lt=leases.database_now() - AUDIT_KEPT_FOR)
    oldest = list(over.order_by("created_at").values_list("pk", flat=True)[:_ROWS_AT_ONCE])
    return AuditEntry.objects.filter(pk__in=oldest).delete()[0]


STEP_SECONDS = 30
TOLERATED_STEPS = (0, -1, 1)  # clocks differ
NUM_RECOVERY_CODES = 10
_RECOVERY_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # none looks like another


def has_second_factor(user: Any) -> bool:
    return SecondFactor.objects.filter(user_id=user.pk, confirmed_at__isnull=False).exists()


def begin_second_factor(user: Any) -> SecondFactor:
    """Give a user who has none a new secret; it is asked for once a first code was right."""
    row, _ = SecondFactor.objects.get_or_create(user_id=user.pk)
    if row.confirmed_at is None:
        row.secret = pyotp.random_base32()
        row.save(update_fields=["encrypted_secret"])
    return row


def address_of(row: SecondFactor, *, site: str) -> str:
    """Return the address that an authenticator app takes, `otpauth://…`."""
    name = row.user.get_username()
    return pyotp.TOTP(row.secret).provisioning_uri(name=name, issuer_name=site)


def confirm_second_factor(row: SecondFactor, code: str) -> list[str]:
    """Ask for codes from now on, if this one is right; return recovery codes, or nothing."""
    if row.confirmed_at is not None or not _take_step(row, code):
        return []
    SecondFactor.objects.filter(pk=row.pk).update(confirmed_at=leases.database_now())
    return make_recovery_codes(row)


def make_recovery_codes(row: SecondFactor) -> list[str]:
    """Replace the codes for who has lost the app, each good once; return them, never kept."""
    codes = [
        "-".join("".join(secrets.choice(_RECOVERY_LETTERS) for _ in range(5)) for _ in range(2))
        for _ in range(NUM_RECOVERY_CODES)
    ]
    digests = [_digest(code) for code in codes]
    SecondFactor.objects.filter(pk=row.pk).update(recovery_digests=digests)
    return codes


def take_code(user: Any, code: str) -> bool:
    """Return whether a code of the app, or a recovery code, is right; neither is taken twice.

    Raises:
        SecretUnreadableError: the secret was kept with another key.
    """
    row = SecondFactor.objects.filter(user_id=user.pk, confirmed_at__isnull=False).first()
    return row is not None and (_take_recovery_code(row.pk, code) or _take_step(row, code))


def _take_step(row: SecondFactor, code: str) -> bool:
    one, now = pyotp.TOTP(row.secret), int(time.time()) // STEP_SECONDS
    given = "".join(code.split()).encode()
    for step in (now + shift for shift in TOLERATED_STEPS):
        if secrets.compare_digest(one.at(step * STEP_SECONDS).encode(), given):
            unused = SecondFactor.objects.filter(pk=row.pk, last_step__lt=step)
            return unused.update(last_step=step) == 1
    return False


def _take_recovery_code(pk: int, code: str) -> bool:
    with transaction.atomic():
        row = SecondFactor.objects.select_for_update().get(pk=pk)
        if (digest := _digest(code)) not in row.recovery_digests:
            return False
        row.recovery_digests.remove(digest)
        row.save(update_fields=["recovery_digests"])
    return True


def _digest(code: str) -> str:
    plain = "".join(letter for letter in code.lower() if letter.isalnum())
    return hashlib.sha256(plain.encode()).hexdigest()  # 49 bits of chance: nobody lists them


def reset_second_factor(user: Any) -> bool:
    """Let a user sign in by the password alone; return whether that is new."""
    return SecondFactor.objects.filter(user_id=user.pk).delete()[0] > 0


def reencrypt_factors() -> None:
    """Encrypt all secrets with the current key; raises SecretUnreadableError as that does."""
    for row in SecondFactor.objects.select_for_update(of=("self",)).order_by("pk"):
        secret = reencrypt(row.encrypted_secret, what=f"The authenticator of user {row.user_id}")
        SecondFactor.objects.filter(pk=row.pk).update(encrypted_secret=secret)


class IdentityRefusedError(RefusedError):
    """An OpenID provider vouches for somebody who is not let in here."""


@transaction.atomic
def user_of_claims(issuer: str, claims: Mapping[str, Any]) -> User:
    """Return the user that a provider's checked claims are of; who is new here is made one.

    Somebody seen before is known by `sub`. Otherwise an address that the provider has verified
    leads to the one account with it, and without such an account to a new one that has no rights.

    Raises:
        IdentityRefusedError: email_unverified, email_ambiguous or account_inactive.
    """
    known = ExternalIdentity.objects.filter(issuer=issuer, subject=claims["sub"])
    identity = known.select_related("user").first()
    if identity is not None:
        return _active(identity.user)
    email = claims.get("email")
    verified = claims.get("email_verified")
    if not isinstance(email, str) or not (verified is True or verified == "true"):
        raise IdentityRefusedError(
            "email_unverified", "The provider has not verified an e-mail address of yours."
        )
    users = list(User.objects.filter(email__iexact=email)[:2])
    if len(users) > 1:
        sentence = "Several accounts have your e-mail address; ask an administrator."
        raise IdentityRefusedError("email_ambiguous", sentence)
    user = _active(users[0]) if users else _make_user(email, email=email)
    ExternalIdentity.objects.create(user=user, issuer=issuer, subject=claims["sub"])
    return user


def user_of_proxy(name: str) -> User | None:
    """Return the user that a reverse proxy names, made if new; None for an inactive one.

    Raises:
        ValidationError: no user can have this name.
    """
    user = User.objects.filter(username=name).first()
    if user is None:
        UnicodeUsernameValidator()(name)
        if len(name) > 150:
            raise ValidationError("The name has more than 150 characters.")
        user, is_new = User.objects.get_or_create(username=name)
        if is_new:
            _without_password(user)
    return user if user.is_active else None


def _active(user: User) -> User:
    if not user.is_active:
        raise IdentityRefusedError("account_inactive", "Your account here is switched off.")
    return user


def _make_user(name: str, *, email: str) -> User:
    """Make a user of an address; a name that is taken is another person's."""
    with contextlib.suppress(ValidationError):
        UnicodeUsernameValidator()(name)
        if len(name) <= 150 and not User.objects.filter(username__iexact=name).exists():
            return _without_password(User(username=name, email=email))
    return _without_password(User(username=f"oidc-{secrets.token_hex(8)}", email=email))


def _without_password(user: User) -> User:
    user.set_unusable_password()
    user.save()
    return user
