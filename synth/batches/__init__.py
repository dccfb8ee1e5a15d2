"""Follow batches of texts and of books to their end, and act on them; the API makes them."""
