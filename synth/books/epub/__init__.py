"""Read EPUB 2 and 3: an archive of strangers, its package, its contents, its documents."""

from synth.books.epub.reader import read_epub

__all__ = ["read_epub"]
