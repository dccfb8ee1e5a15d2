"""Store books, and let jobs be paused."""

import uuid

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = (
        ("synth", "0010_batches_in_the_admin"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    )

    operations = (
        migrations.AddField(
            model_name="renderjob",
            name="paused_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.CreateModel(
            name="BookSource",
            fields=[
                ("claimed_by", models.CharField(blank=True, default="", max_length=120)),
                ("claim_token", models.UUIDField(blank=True, null=True)),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("not_before", models.DateTimeField(default=django.utils.timezone.now)),
                ("sent_at", models.DateTimeField(blank=True, null=True)),
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("importing", "Importing"),
                            ("planned", "Planned"),
                            ("failed", "Failed"),
                        ],
                        default="importing",
                        max_length=10,
                    ),
                ),
                ("filename", models.CharField(max_length=255)),
                ("object_key", models.CharField(max_length=300)),
                ("size_bytes", models.PositiveBigIntegerField()),
                ("sha256", models.CharField(max_length=64)),
                ("title", models.CharField(blank=True, default="", max_length=500)),
                ("authors", models.JSONField(blank=True, default=list)),
                ("language", models.CharField(blank=True, default="", max_length=35)),
                ("book_key", models.CharField(blank=True, default="", max_length=300)),
                ("cover_key", models.CharField(blank=True, default="", max_length=300)),
                ("cover_type", models.CharField(blank=True, default="", max_length=100)),
                ("options", models.JSONField(blank=True, default=dict)),
                ("policies", models.JSONField(blank=True, default=dict)),
                ("edits", models.JSONField(blank=True, default=list)),
                ("plan_number", models.PositiveIntegerField(default=1)),
                ("figures", models.JSONField(blank=True, default=dict)),
                ("started", models.JSONField(blank=True, default=dict)),
                ("start_wanted", models.BooleanField(default=False)),
                ("idempotency_key", models.CharField(blank=True, default="", max_length=255)),
                ("body_digest", models.CharField(blank=True, default="", max_length=64)),
                ("error_code", models.CharField(blank=True, default="", max_length=60)),
                ("error_message", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "api_key",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="books",
                        to="synth.apikey",
                    ),
                ),
                (
                    "job",
                    models.OneToOneField(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="book",
                        to="synth.renderjob",
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="books",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ("-created_at", "-id"),
                "indexes": [models.Index(fields=["state", "not_before"], name="book_import_queue")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("idempotency_key", ""), _negated=True),
                        fields=("owner", "idempotency_key"),
                        name="book_idempotency_key_unique_per_owner",
                    )
                ],
            },
        ),
    )
