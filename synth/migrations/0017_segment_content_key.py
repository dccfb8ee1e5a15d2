"""Of equal segments one is rendered at a time; the others wait for its take."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("synth", "0016_encrypt_webhook_secrets")]

    operations = [
        migrations.AddField(
            model_name="segment",
            name="content_key",
            field=models.CharField(blank=True, default="", editable=False, max_length=64),
        ),
        migrations.AddConstraint(
            model_name="segment",
            constraint=models.UniqueConstraint(
                condition=models.Q(("status", "claimed"), models.Q(("content_key", ""), _negated=True)),
                fields=("content_key",),
                name="segment_content_key_rendered_once",
            ),
        ),
    ]
