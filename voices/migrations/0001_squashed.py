import django.db.models.deletion
import django.db.models.functions.text
import django.utils.timezone
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    # A database of a development version has these; it needs nothing more.
    replaces = [
        ('voices', '0001_initial'),
        ('voices', '0002_voice_shared_and_names_per_owner'),
        ('voices', '0003_clips_apart_by_tenant'),
        ('voices', '0004_consent_withdrawn'),
        ('voices', '0005_clip_audio_gone'),
        ('voices', '0006_losses'),
    ]

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='CacheEviction',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('clip_fingerprint', models.CharField(max_length=64)),
                ('created_at', models.DateTimeField(auto_now_add=True, db_index=True)),
            ],
        ),
        migrations.CreateModel(
            name='CodesCounter',
            fields=[
                ('name', models.CharField(max_length=40, primary_key=True, serialize=False)),
                ('value', models.PositiveBigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name='StoredClip',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('fingerprint', models.CharField(max_length=64)),
                ('tenant', models.CharField(blank=True, default='', max_length=40)),
                ('original_key', models.CharField(blank=True, max_length=300)),
                ('used_key', models.CharField(blank=True, default='', max_length=300)),
                ('container', models.CharField(max_length=20)),
                ('size_bytes', models.PositiveBigIntegerField()),
                ('measures', models.JSONField(blank=True, default=dict)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('fingerprint', 'tenant'), name='stored_clip_unique_per_tenant')],
            },
        ),
        migrations.CreateModel(
            name='Voice',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100)),
                ('description', models.TextField(blank=True, default='', max_length=2000)),
                ('language', models.CharField(blank=True, default='', max_length=35)),
                ('shared', models.BooleanField(default=False)),
                ('consent_statement', models.TextField(max_length=2000)),
                ('consent_by', models.CharField(max_length=200)),
                ('consent_at', models.DateTimeField()),
                ('consent_withdrawn_at', models.DateTimeField(blank=True, null=True)),
                ('cache_codes', models.BooleanField(default=True)),
                ('archived', models.BooleanField(default=False)),
                ('deleted_at', models.DateTimeField(blank=True, null=True)),
                ('last_used_at', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('owner', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='voices', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='VoiceVersion',
            fields=[
                ('claimed_by', models.CharField(blank=True, default='', max_length=120)),
                ('claim_token', models.UUIDField(blank=True, null=True)),
                ('lease_until', models.DateTimeField(blank=True, null=True)),
                ('attempts', models.PositiveSmallIntegerField(default=0)),
                ('losses', models.PositiveSmallIntegerField(default=0)),
                ('not_before', models.DateTimeField(default=django.utils.timezone.now)),
                ('sent_at', models.DateTimeField(blank=True, null=True)),
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('number', models.PositiveIntegerField(default=1)),
                ('status', models.CharField(choices=[('pending', 'Pending'), ('encoding', 'Encoding'), ('ready', 'Ready'), ('failed', 'Failed')], default='pending', max_length=10)),
                ('codec_fingerprint', models.CharField(blank=True, default='', max_length=64)),
                ('frames', models.PositiveIntegerField(default=0)),
                ('error_code', models.CharField(blank=True, default='', max_length=60)),
                ('error_message', models.TextField(blank=True, default='')),
                ('warnings', models.JSONField(blank=True, default=list)),
                ('encoded_at', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('voice', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='voices.voice')),
            ],
            options={
                'ordering': ('-number',),
            },
        ),
        migrations.CreateModel(
            name='ReferenceClip',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('index', models.PositiveSmallIntegerField(default=0)),
                ('filename', models.CharField(blank=True, default='', max_length=200)),
                ('transcript', models.TextField(max_length=5000)),
                ('stored', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='uses', to='voices.storedclip')),
                ('version', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='clips', to='voices.voiceversion')),
            ],
            options={
                'ordering': ('index',),
            },
        ),
        migrations.CreateModel(
            name='ClipCodes',
            fields=[
                ('claimed_by', models.CharField(blank=True, default='', max_length=120)),
                ('claim_token', models.UUIDField(blank=True, null=True)),
                ('lease_until', models.DateTimeField(blank=True, null=True)),
                ('attempts', models.PositiveSmallIntegerField(default=0)),
                ('losses', models.PositiveSmallIntegerField(default=0)),
                ('not_before', models.DateTimeField(default=django.utils.timezone.now)),
                ('sent_at', models.DateTimeField(blank=True, null=True)),
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('codec_fingerprint', models.CharField(max_length=64)),
                ('key', models.CharField(blank=True, default='', max_length=300)),
                ('frames', models.PositiveIntegerField(default=0)),
                ('resampler', models.CharField(blank=True, default='', max_length=20)),
                ('encoded_at', models.DateTimeField(blank=True, null=True)),
                ('clip', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='codes', to='voices.storedclip')),
            ],
            options={
                'verbose_name_plural': 'clip codes',
                'constraints': [models.UniqueConstraint(fields=('clip', 'codec_fingerprint'), name='clip_codes_unique_per_codec')],
            },
        ),
        migrations.AddConstraint(
            model_name='voice',
            constraint=models.UniqueConstraint(django.db.models.functions.text.Lower('name'), models.F('owner'), condition=models.Q(('deleted_at__isnull', True), ('owner__isnull', False)), name='voice_name_unique_per_owner'),
        ),
        migrations.AddConstraint(
            model_name='voice',
            constraint=models.UniqueConstraint(django.db.models.functions.text.Lower('name'), condition=models.Q(('deleted_at__isnull', True), ('owner__isnull', True)), name='voice_name_unique_without_owner'),
        ),
        migrations.AddIndex(
            model_name='voiceversion',
            index=models.Index(fields=['status', 'not_before'], name='voice_version_queue'),
        ),
        migrations.AddConstraint(
            model_name='voiceversion',
            constraint=models.UniqueConstraint(fields=('voice', 'number'), name='voice_version_number_unique'),
        ),
        migrations.AddConstraint(
            model_name='referenceclip',
            constraint=models.UniqueConstraint(fields=('version', 'index'), name='reference_clip_index_unique'),
        ),
    ]
