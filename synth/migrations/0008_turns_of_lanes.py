"""Note the turns of lanes, and let claims read queues by lane and suspects by their attempts."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('synth', '0007_job_lexicons'),
    ]

    operations = [
        migrations.CreateModel(
            name='LaneTurn',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('priority', models.PositiveSmallIntegerField()),
                ('lane', models.CharField(blank=True, max_length=40)),
                ('turn_at', models.DateTimeField()),
            ],
        ),
        migrations.RemoveIndex(
            model_name='renderjob',
            name='render_job_lane',
        ),
        migrations.AddIndex(
            model_name='renderjob',
            index=models.Index(fields=['status', 'priority', 'lane', 'created_at'], name='render_job_lane'),
        ),
        migrations.AddIndex(
            model_name='segment',
            index=models.Index(fields=['status', 'attempts'], name='segment_attempts'),
        ),
        migrations.AddConstraint(
            model_name='laneturn',
            constraint=models.UniqueConstraint(fields=('priority', 'lane'), name='lane_turn_unique'),
        ),
    ]
