"""Who may do what, and how much: users, groups, API keys, their limits, whose jobs are seen."""
