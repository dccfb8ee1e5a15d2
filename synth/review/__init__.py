"""List what needs somebody's ears over all jobs, worst first, and take what is said."""
