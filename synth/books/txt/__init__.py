"""Read plain text as a book."""
