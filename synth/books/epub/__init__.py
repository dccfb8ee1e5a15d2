"""EPUB 2 and 3: an archive of strangers, its package, its contents, its documents."""
