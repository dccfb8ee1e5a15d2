"""Look at everything a working installation needs, one finding each, with the remedy."""
