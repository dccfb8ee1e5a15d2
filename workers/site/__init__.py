"""What a worker needs of its site: work and codes from it, takes and signs of life to it."""
