from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("synth", "0012_book_batches_and_files"),
    ]

    operations = [
        migrations.RenameField(
            model_name="apikey",
            old_name="max_voice_bytes",
            new_name="max_stored_bytes",
        ),
        migrations.AlterField(
            model_name="apikey",
            name="max_stored_bytes",
            field=models.PositiveBigIntegerField(
                blank=True,
                help_text="Limits the bytes of the user's clips, finished files and uploaded books "
                "together; empty: no limit.",
                null=True,
                verbose_name="most stored bytes",
            ),
        ),
        migrations.AlterModelOptions(
            name="booksource",
            options={"ordering": ("-created_at", "-id"), "verbose_name": "book"},
        ),
    ]
