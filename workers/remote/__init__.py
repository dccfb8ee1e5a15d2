"""Work over HTTPS for a site elsewhere: the worker's side, the site's side, and their messages."""
