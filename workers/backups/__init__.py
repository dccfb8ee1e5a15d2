"""Keep an installation: back it up while it runs, bring it back, check what its rows name."""
