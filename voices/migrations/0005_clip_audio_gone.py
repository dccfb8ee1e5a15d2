"""The audio of a clip that came with a job goes before its codes do."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("voices", "0004_consent_withdrawn")]

    operations = [
        migrations.AlterField(
            model_name="storedclip",
            name="original_key",
            field=models.CharField(blank=True, max_length=300),
        ),
    ]
