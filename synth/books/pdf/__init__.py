"""Read PDF files with embedded text as books."""
