"""Store how people sign in, which tries failed, and who changed what."""

from __future__ import annotations

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models

from ttsweb.encryption import decrypt, encrypt


class SecondFactor(models.Model):
    """What a local user's authenticator app shares with this site."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="second_factor"
    )
    encrypted_secret = models.TextField()
    confirmed_at = models.DateTimeField(null=True, blank=True)  # by a first code: from then on
    last_step = models.BigIntegerField(default=0)  # of a code that was taken; none is taken twice
    recovery_digests = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"second factor of {self.user}"

    @property
    def secret(self) -> str:
        """The secret in clear; raises SecretUnreadableError where the key is another one."""
        return decrypt(self.encrypted_secret, what="The authenticator's secret")

    @secret.setter
    def secret(self, clear: str) -> None:
        self.encrypted_secret = encrypt(clear)


class ExternalIdentity(models.Model):
    """Who a user is at an OpenID provider."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="external_identities"
    )
    issuer = models.CharField(max_length=500)
    subject = models.CharField(max_length=255)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("issuer", "subject"), name="external_identity_unique"),
        )

    def __str__(self) -> str:
        return f"{self.user} at {self.issuer}"


class SignInTry(models.Model):
    """A try to sign in that failed, or is going on.

    The name is a digest: people type passwords into that field.
    """

    name_digest = models.CharField(max_length=64)
    address = models.CharField(max_length=45)
    tried_at = models.DateTimeField()

    class Meta:
        indexes = (
            models.Index(fields=("name_digest", "address", "tried_at"), name="sign_in_try_name"),
            models.Index(fields=("address", "tried_at"), name="sign_in_try_address"),
        )

    def __str__(self) -> str:
        return f"a try from {self.address}"


class AuditEntry(models.Model):
    """One request that changes something: who, what, when, from where; never what was sent.

    Who is written down and no link, so that an entry stays as it is when a user or a key goes.
    """

    created_at = models.DateTimeField(db_index=True)
    user_id = models.BigIntegerField(null=True, blank=True)
    username = models.CharField("user", max_length=150, blank=True, default="")
    key_id = models.UUIDField(null=True, blank=True)
    key_prefix = models.CharField("key", max_length=20, blank=True, default="")
    method = models.CharField(max_length=7)
    route = models.CharField(max_length=100)
    ids = models.JSONField(default=dict, encoder=DjangoJSONEncoder)
    address = models.CharField(max_length=45, blank=True, default="")
    status = models.PositiveSmallIntegerField()

    class Meta:
        verbose_name_plural = "audit entries"
        ordering = ("-created_at", "-id")

    def __str__(self) -> str:
        return f"{self.method} {self.route}"


class NoticeWish(models.Model):
    """What a user wants to be told of by e-mail."""

    class About(models.TextChoices):
        JOBS = "jobs", "Jobs"
        BOOKS = "books", "Books"
        BATCHES = "batches", "Batches"

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notice_wish"
    )
    about = models.JSONField(default=list)
    failures_only = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"notices to {self.user}"
