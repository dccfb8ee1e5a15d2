"""New rows wait for nothing by the database's clock: a default of the code alone, no table changes."""

from __future__ import annotations

from django.db import migrations, models

import ttsweb.leases


class Migration(migrations.Migration):
    dependencies = [("voices", "0003_transcript")]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AlterField(
                    model_name=name,
                    name="not_before",
                    field=models.DateTimeField(default=ttsweb.leases.database_now),
                )
                for name in ("clipcodes", "transcript", "voiceversion")
            ]
        )
    ]
