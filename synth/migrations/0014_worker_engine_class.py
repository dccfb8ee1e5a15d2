"""Workers say what the sound of their takes depends on, by which takes are named from now on."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("synth", "0013_stored_bytes_and_names")]

    operations = [
        migrations.AddField(
            model_name="workerstatus",
            name="engine_class",
            field=models.JSONField(blank=True, default=dict),
        ),
    ]
