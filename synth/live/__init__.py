"""Let a job's audio be heard while it is rendered: rows and objects in, one HTTP answer out."""
