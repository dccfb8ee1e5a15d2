"""Show progress and tables on a terminal; write plain lines elsewhere."""
