"""Make read-along EPUBs: text whose sentences light up while they are heard."""
