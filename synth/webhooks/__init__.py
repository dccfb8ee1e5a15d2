"""Tell users' own servers what happened, by the Standard Webhooks specification."""
