from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('synth', '0006_history'),
    ]

    operations = [
        migrations.AddField(
            model_name='workerstatus',
            name='run',
            field=models.CharField(blank=True, db_default='', default='', max_length=32),
        ),
        migrations.AddField(
            model_name='signintry',
            name='was_refused',
            field=models.BooleanField(db_default=False, default=False),
        ),
    ]
