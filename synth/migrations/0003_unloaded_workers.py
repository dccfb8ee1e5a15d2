from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('synth', '0002_ignored_fields'),
    ]

    operations = [
        migrations.AlterField(
            model_name='workerstatus',
            name='state',
            field=models.CharField(choices=[('starting', 'Starting'), ('warming', 'Warming'), ('ready', 'Ready'), ('unloaded', 'Unloaded'), ('draining', 'Draining'), ('stopped', 'Stopped'), ('failed', 'Failed')], default='starting', max_length=10),
        ),
    ]
