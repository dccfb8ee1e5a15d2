"""Find the jobs that are listened to through an index."""

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('synth', '0008_turns_of_lanes'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddIndex(
            model_name='renderjob',
            index=models.Index(condition=models.Q(('live_requested_at__isnull', False)), fields=['live_requested_at'], name='render_job_live'),
        ),
    ]
