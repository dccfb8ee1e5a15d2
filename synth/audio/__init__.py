"""Change audio block by block, and encode it into files and streams; without Django and torch."""
