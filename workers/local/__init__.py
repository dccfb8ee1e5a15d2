"""What commands run on this machine: a site, a worker, a demo."""
