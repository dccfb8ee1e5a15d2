"""Books as jobs: uploaded, read by a worker, planned, edited, started, and proven to be whole."""
