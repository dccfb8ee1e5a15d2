"""Store what belongs to users: API keys, ways to sign in, acts, wishes, lexicons, webhooks."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower

from ttsweb.encryption import decrypt, encrypt
from ttsweb.leases import LeasedModel
from ttsweb.rights import DEFAULT_SCOPES, LIMITS, SCOPES
from voices.models import Voice

MAIL = "mailto:"  # how the URL of an e-mail notice begins


def default_scopes() -> list[str]:
    """Return what a key may do unless something else is said."""
    return list(DEFAULT_SCOPES)


class ApiKey(models.Model):
    """A named key of a user. Only its secret's digest is kept; it is shown once.

    It never has more rights than its user. A limit that is None does not limit.
    """

    class Scope(models.TextChoices):
        READ = "read", SCOPES["read"]
        VOICES = "voices", SCOPES["voices"]
        JOBS = "jobs", SCOPES["jobs"]
        ADMIN = "admin", SCOPES["admin"]
        WORKER = "worker", SCOPES["worker"]

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_keys"
    )
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=16, unique=True)
    digest = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    scopes = models.JSONField(default=default_scopes)
    max_queued_chars = models.PositiveIntegerField(
        null=True,
        blank=True,
        verbose_name=LIMITS["max_queued_chars"],
        help_text=(
            "Limits the characters in this key's texts that are not rendered yet; empty: no limit."
        ),
    )
    max_unfinished_jobs = models.PositiveIntegerField(
        null=True,
        blank=True,
        verbose_name=LIMITS["max_unfinished_jobs"],
        help_text="Limits the jobs of this key that are queued or running; empty: no limit.",
    )
    max_requests_per_minute = models.PositiveIntegerField(
        null=True,
        blank=True,
        verbose_name=LIMITS["max_requests_per_minute"],
        help_text="Limits the requests per clock minute; empty: no limit.",
    )
    max_stored_bytes = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        verbose_name=LIMITS["max_stored_bytes"],
        help_text=(
            "Limits the bytes of the user's clips, finished files and uploaded books together; "
            "empty: no limit."
        ),
    )
    # Requests that processes have taken for themselves in a minute since 1970; see key_rate.
    rate_minute = models.PositiveIntegerField(default=0, editable=False)
    rate_taken = models.PositiveIntegerField(default=0, editable=False)

    class Meta:
        verbose_name = "API key"
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class IgnoredField(models.Model):
    """Count the calls of one dialect in which a field was ignored."""

    dialect = models.CharField(max_length=20)
    name = models.CharField(max_length=60)
    count = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("dialect", "name"), name="ignored_field_unique"),
        )

    def __str__(self) -> str:
        return f"{self.dialect} {self.name}={self.count}"


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

    The name is a digest: people type passwords into that field. One that was refused without a look
    at the password counts towards no lock-out.
    """

    name_digest = models.CharField(max_length=64)
    address = models.CharField(max_length=45)
    tried_at = models.DateTimeField()
    was_refused = models.BooleanField(default=False, db_default=False)

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


class Lexicon(models.Model):
    """A named list of entries of a user. Without an owner it is everybody's.

    A `global` one applies to every job of its owner (or of all users), a `voice` one to what its
    voice speaks, a `named` one where a job asks for it.
    """

    class Scope(models.TextChoices):
        GLOBAL = "global"
        VOICE = "voice"
        NAMED = "named"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="lexicons",
    )
    name = models.CharField(max_length=100)
    scope = models.CharField(max_length=10, choices=Scope, default=Scope.NAMED)
    voice = models.ForeignKey(
        Voice, null=True, blank=True, on_delete=models.CASCADE, related_name="lexicons"
    )
    language = models.CharField(max_length=35, blank=True, default="")
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name_plural = "lexicons"
        ordering = ("name",)
        constraints = (
            models.UniqueConstraint(
                Lower("name"),
                "owner",
                condition=Q(owner__isnull=False),
                name="lexicon_name_unique_per_owner",
            ),
            models.UniqueConstraint(
                Lower("name"),
                condition=Q(owner__isnull=True),
                name="lexicon_name_unique_without_owner",
            ),
        )

    def __str__(self) -> str:
        return self.name


class LexiconEntry(models.Model):
    """One rule: where `find` stands in a text, `say` is spoken."""

    class Kind(models.TextChoices):
        LITERAL = "literal"
        WORD = "word"
        REGEX = "regex"

    lexicon = models.ForeignKey(Lexicon, on_delete=models.CASCADE, related_name="entries")
    index = models.PositiveIntegerField(default=0)
    find = models.CharField(max_length=500)
    say = models.CharField(max_length=500, blank=True, default="")
    kind = models.CharField(max_length=10, choices=Kind, default=Kind.WORD)
    case_sensitive = models.BooleanField(default=False)
    language = models.CharField(max_length=35, blank=True, default="")
    enabled = models.BooleanField(default=True)

    class Meta:
        verbose_name_plural = "lexicon entries"
        ordering = ("index", "pk")

    def __str__(self) -> str:
        return self.find


def all_events() -> list[str]:
    """Return the events that an endpoint gets unless something else is said."""
    return [event.value for event in WebhookDelivery.Event]


class WebhookSecret(models.Model):
    """The key that signs what is sent to a user's URLs; the one before it signs too for a while."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="webhook_secret"
    )
    encrypted_secret = models.TextField()
    encrypted_previous = models.TextField(blank=True, default="")
    rotated_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"webhook secret of {self.user}"

    @property
    def secret(self) -> str:
        """The secret in clear; raises SecretUnreadableError where the key is another one."""
        return decrypt(self.encrypted_secret, what="The webhook secret")

    @secret.setter
    def secret(self, clear: str) -> None:
        self.encrypted_secret = encrypt(clear)

    @property
    def previous(self) -> str:
        """The secret before it, or nothing; errors as for `secret`."""
        return decrypt(self.encrypted_previous, what="The previous webhook secret")


class WebhookEndpoint(models.Model):
    """A URL that gets the events of all jobs of a user."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="webhook_endpoints"
    )
    url = models.CharField(max_length=2000)
    events = models.JSONField(default=all_events)
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("created_at",)

    def __str__(self) -> str:
        return self.url


class WebhookDelivery(LeasedModel):
    """One message to one URL, and how far it is; its body stays the same, however often it goes."""

    class Status(models.TextChoices):
        QUEUED = "queued"
        CLAIMED = "claimed"
        DELIVERED = "delivered"
        FAILED = "failed"

    class Event(models.TextChoices):
        JOB_SUCCEEDED = "job.succeeded"
        JOB_PARTIAL = "job.partial"
        JOB_FAILED = "job.failed"
        JOB_CANCELLED = "job.cancelled"
        VOICE_READY = "voice.ready"
        VOICE_FAILED = "voice.failed"
        BOOK_BATCH_ENDED = "book_batch.ended"
        TEST = "test"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="webhook_deliveries"
    )
    job = models.ForeignKey(
        "synth.RenderJob",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="webhook_deliveries",
    )
    batch = models.ForeignKey(
        "synth.Batch",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="webhook_deliveries",
    )
    event = models.CharField(max_length=30, choices=Event)
    url = models.CharField(max_length=2000)
    body = models.TextField()
    status = models.CharField(max_length=10, choices=Status, default=Status.QUEUED)
    response_status = models.PositiveSmallIntegerField(null=True, blank=True)
    error_code = models.CharField(max_length=60, blank=True, default="")
    error_message = models.TextField(blank=True, default="")
    give_up_at = models.DateTimeField()
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "webhook deliveries"
        ordering = ("-created_at", "-id")
        indexes = (models.Index(fields=("status", "not_before"), name="webhook_delivery_queue"),)

    def __str__(self) -> str:
        return f"{self.event} to {self.url}"

    @property
    def about(self) -> uuid.UUID | None:
        return self.batch_id if self.event.startswith("job.") and self.batch_id else self.job_id
