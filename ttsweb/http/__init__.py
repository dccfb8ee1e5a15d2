"""What every request and answer has in common: bodies, errors, pages, filters, addresses."""
