"""Read documents with markup as books: XHTML, HTML, Markdown, Word."""
