"""Encrypt the secrets that sign webhooks; going back puts them in clear again."""

from collections.abc import Callable
from typing import Any

from django.db import migrations, models

from ttsweb.encryption import decrypt, encrypt

COLUMNS = ("encrypted_secret", "encrypted_previous")


def _wipe_what_is_replaced(apps: Any, schema_editor: Any) -> None:
    """Have SQLite overwrite the pages that hold the secrets in clear, instead of only freeing."""
    if schema_editor.connection.vendor == "sqlite":
        schema_editor.execute("PRAGMA secure_delete=ON")


def _encrypt(apps: Any, schema_editor: Any) -> None:
    _change(apps, encrypt)


def _decrypt(apps: Any, schema_editor: Any) -> None:
    _change(apps, lambda token: decrypt(token, what="A webhook secret"))


def _change(apps: Any, change: Callable[[str], str]) -> None:
    rows = apps.get_model("synth", "WebhookSecret").objects
    for row in rows.order_by("pk").iterator():
        for column in COLUMNS:
            setattr(row, column, change(getattr(row, column)))
        row.save(update_fields=COLUMNS)


class Migration(migrations.Migration):
    """Rename and widen the two columns, then encrypt what is in them."""

    dependencies = (("synth", "0015_name_jobs_and_workers"),)
    operations = (
        migrations.RunPython(_wipe_what_is_replaced, migrations.RunPython.noop),
        migrations.RenameField("webhooksecret", "secret", "encrypted_secret"),
        migrations.RenameField("webhooksecret", "previous", "encrypted_previous"),
        migrations.AlterField("webhooksecret", "encrypted_secret", models.TextField()),
        migrations.AlterField(
            "webhooksecret", "encrypted_previous", models.TextField(blank=True, default="")
        ),
        migrations.RunPython(_encrypt, _decrypt),
    )
