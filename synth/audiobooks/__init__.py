"""Books as audiobooks: uploaded, planned, cast, started, proven to be whole, made into files."""
