"""Add options, batches, lexicons, webhooks, live audio and quality marks."""

import django.db.models.deletion
import django.db.models.functions.text
import django.utils.timezone
import synth.models.webhooks
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('synth', '0003_key_scopes_and_limits'),
        ('voices', '0002_voice_shared_and_names_per_owner'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Lexicon',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100)),
                ('scope', models.CharField(choices=[('global', 'Global'), ('voice', 'Voice'), ('named', 'Named')], default='named', max_length=10)),
                ('language', models.CharField(blank=True, default='', max_length=35)),
                ('enabled', models.BooleanField(default=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
            ],
            options={
                'verbose_name_plural': 'lexicons',
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='LexiconEntry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('index', models.PositiveIntegerField(default=0)),
                ('find', models.CharField(max_length=500)),
                ('say', models.CharField(blank=True, default='', max_length=500)),
                ('kind', models.CharField(choices=[('literal', 'Literal'), ('word', 'Word'), ('regex', 'Regex')], default='word', max_length=10)),
                ('case_sensitive', models.BooleanField(default=False)),
                ('language', models.CharField(blank=True, default='', max_length=35)),
                ('enabled', models.BooleanField(default=True)),
            ],
            options={
                'verbose_name_plural': 'lexicon entries',
                'ordering': ('index', 'pk'),
            },
        ),
        migrations.CreateModel(
            name='LiveChunk',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('attempt', models.UUIDField()),
                ('index', models.PositiveIntegerField()),
                ('key', models.CharField(max_length=300)),
                ('num_samples', models.PositiveIntegerField()),
                ('sample_rate', models.PositiveIntegerField()),
                ('is_last', models.BooleanField(default=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ('segment', 'pk'),
            },
        ),
        migrations.CreateModel(
            name='RenderedDay',
            fields=[
                ('day', models.DateField(primary_key=True, serialize=False)),
                ('segments', models.PositiveBigIntegerField(default=0)),
                ('reused', models.PositiveBigIntegerField(default=0)),
                ('audio_seconds', models.FloatField(default=0.0)),
            ],
            options={
                'ordering': ('-day',),
            },
        ),
        migrations.CreateModel(
            name='WebhookDelivery',
            fields=[
                ('claimed_by', models.CharField(blank=True, default='', max_length=120)),
                ('claim_token', models.UUIDField(blank=True, null=True)),
                ('lease_until', models.DateTimeField(blank=True, null=True)),
                ('attempts', models.PositiveSmallIntegerField(default=0)),
                ('not_before', models.DateTimeField(default=django.utils.timezone.now)),
                ('sent_at', models.DateTimeField(blank=True, null=True)),
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('event', models.CharField(choices=[('job.succeeded', 'Job Succeeded'), ('job.partial', 'Job Partial'), ('job.failed', 'Job Failed'), ('job.cancelled', 'Job Cancelled'), ('voice.ready', 'Voice Ready'), ('voice.failed', 'Voice Failed'), ('test', 'Test')], max_length=30)),
                ('url', models.CharField(max_length=2000)),
                ('body', models.TextField()),
                ('status', models.CharField(choices=[('queued', 'Queued'), ('claimed', 'Claimed'), ('delivered', 'Delivered'), ('failed', 'Failed')], default='queued', max_length=10)),
                ('response_status', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('error_code', models.CharField(blank=True, default='', max_length=60)),
                ('error_message', models.TextField(blank=True, default='')),
                ('give_up_at', models.DateTimeField()),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'verbose_name_plural': 'webhook deliveries',
                'ordering': ('-created_at', '-id'),
            },
        ),
        migrations.CreateModel(
            name='WebhookEndpoint',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('url', models.CharField(max_length=2000)),
                ('events', models.JSONField(default=synth.models.webhooks.all_events)),
                ('enabled', models.BooleanField(default=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ('created_at',),
            },
        ),
        migrations.CreateModel(
            name='WebhookSecret',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('secret', models.CharField(max_length=100)),
                ('previous', models.CharField(blank=True, default='', max_length=100)),
                ('rotated_at', models.DateTimeField(auto_now_add=True)),
            ],
        ),
        migrations.AddField(
            model_name='export',
            name='peaks',
            field=models.JSONField(blank=True, default=list),
        ),
        migrations.AddField(
            model_name='export',
            name='report',
            field=models.JSONField(blank=True, default=dict),
        ),
        migrations.AddField(
            model_name='renderjob',
            name='batch',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='items', to='synth.renderjob'),
        ),
        migrations.AddField(
            model_name='renderjob',
            name='bit_rate',
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='renderjob',
            name='custom_id',
            field=models.CharField(blank=True, default='', max_length=200),
        ),
        migrations.AddField(
            model_name='renderjob',
            name='deadline_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='renderjob',
            name='expires_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='renderjob',
            name='item_index',
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='renderjob',
            name='items_ended',
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='renderjob',
            name='items_total',
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='renderjob',
            name='lane',
            field=models.CharField(blank=True, default='', max_length=40),
        ),
        migrations.AddField(
            model_name='renderjob',
            name='language',
            field=models.CharField(blank=True, default='', max_length=35),
        ),
        migrations.AddField(
            model_name='renderjob',
            name='lexicon',
            field=models.JSONField(blank=True, default=list),
        ),
        migrations.AddField(
            model_name='renderjob',
            name='live_requested_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='renderjob',
            name='loudness',
            field=models.FloatField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='renderjob',
            name='max_retakes',
            field=models.PositiveSmallIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='renderjob',
            name='normalise',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='renderjob',
            name='pauses',
            field=models.JSONField(blank=True, default=dict),
        ),
        migrations.AddField(
            model_name='renderjob',
            name='retention_seconds',
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='renderjob',
            name='sample_rate',
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='renderjob',
            name='webhook_url',
            field=models.CharField(blank=True, default='', max_length=2000),
        ),
        migrations.AddField(
            model_name='segment',
            name='candidates',
            field=models.JSONField(blank=True, default=list),
        ),
        migrations.AddField(
            model_name='segment',
            name='retakes',
            field=models.PositiveSmallIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='take',
            name='quality_flags',
            field=models.JSONField(blank=True, default=list),
        ),
        migrations.AddField(
            model_name='take',
            name='quality_score',
            field=models.FloatField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='take',
            name='size_bytes',
            field=models.PositiveBigIntegerField(default=0),
        ),
        migrations.AlterField(
            model_name='renderjob',
            name='text',
            field=models.TextField(blank=True),
        ),
        migrations.AddIndex(
            model_name='renderjob',
            index=models.Index(fields=['status', 'lane'], name='render_job_lane'),
        ),
        migrations.AddIndex(
            model_name='renderjob',
            index=models.Index(fields=['expires_at'], name='render_job_expiry'),
        ),
        migrations.AddConstraint(
            model_name='renderjob',
            constraint=models.UniqueConstraint(fields=('batch', 'item_index'), name='render_job_item_index_unique_per_batch'),
        ),
        migrations.AddField(
            model_name='lexicon',
            name='owner',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='lexicons', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='lexicon',
            name='voice',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='lexicons', to='voices.voice'),
        ),
        migrations.AddField(
            model_name='lexiconentry',
            name='lexicon',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='entries', to='synth.lexicon'),
        ),
        migrations.AddField(
            model_name='livechunk',
            name='segment',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='live_chunks', to='synth.segment'),
        ),
        migrations.AddField(
            model_name='webhookdelivery',
            name='job',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='webhook_deliveries', to='synth.renderjob'),
        ),
        migrations.AddField(
            model_name='webhookdelivery',
            name='owner',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='webhook_deliveries', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='webhookendpoint',
            name='owner',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='webhook_endpoints', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='webhooksecret',
            name='user',
            field=models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='webhook_secret', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddConstraint(
            model_name='lexicon',
            constraint=models.UniqueConstraint(django.db.models.functions.text.Lower('name'), models.F('owner'), condition=models.Q(('owner__isnull', False)), name='lexicon_name_unique_per_owner'),
        ),
        migrations.AddConstraint(
            model_name='lexicon',
            constraint=models.UniqueConstraint(django.db.models.functions.text.Lower('name'), condition=models.Q(('owner__isnull', True)), name='lexicon_name_unique_without_owner'),
        ),
        migrations.AddConstraint(
            model_name='livechunk',
            constraint=models.UniqueConstraint(fields=('segment', 'attempt', 'index'), name='live_chunk_index_unique'),
        ),
        migrations.AddIndex(
            model_name='webhookdelivery',
            index=models.Index(fields=['status', 'not_before'], name='webhook_delivery_queue'),
        ),
    ]
