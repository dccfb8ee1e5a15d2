"""Keep the clips of tenants apart; those so far stay with the versions that use them."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('voices', '0002_voice_shared_and_names_per_owner'),
    ]

    operations = [
        migrations.AddField(
            model_name='storedclip',
            name='tenant',
            field=models.CharField(blank=True, default='', max_length=40),
        ),
        migrations.AlterField(
            model_name='storedclip',
            name='fingerprint',
            field=models.CharField(max_length=64),
        ),
        migrations.AddConstraint(
            model_name='storedclip',
            constraint=models.UniqueConstraint(fields=('fingerprint', 'tenant'), name='stored_clip_unique_per_tenant'),
        ),
    ]
