"""Make the files of a book: mastered chapters, M4B, MP3 and others, subtitles, read-along EPUB."""
