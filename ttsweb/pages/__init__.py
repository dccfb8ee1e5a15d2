"""The pages of the site that belong to no single model, and what the admin's pages share."""
