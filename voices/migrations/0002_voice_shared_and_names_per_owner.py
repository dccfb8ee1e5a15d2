"""Let a voice be shared or its owner's alone, and its name be unique per owner."""

import django.db.models.functions.text
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('voices', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='voice',
            name='voice_name_unique_while_it_exists',
        ),
        migrations.AddField(
            model_name='voice',
            name='shared',
            field=models.BooleanField(default=True),  # voices so far were everybody's
        ),
        migrations.AlterField(
            model_name='voice',
            name='shared',
            field=models.BooleanField(default=False),
        ),
        migrations.AddConstraint(
            model_name='voice',
            constraint=models.UniqueConstraint(django.db.models.functions.text.Lower('name'), models.F('owner'), condition=models.Q(('deleted_at__isnull', True), ('owner__isnull', False)), name='voice_name_unique_per_owner'),
        ),
        migrations.AddConstraint(
            model_name='voice',
            constraint=models.UniqueConstraint(django.db.models.functions.text.Lower('name'), condition=models.Q(('deleted_at__isnull', True), ('owner__isnull', True)), name='voice_name_unique_without_owner'),
        ),
    ]
