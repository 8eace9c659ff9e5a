"""What outlives a process: claims, sessions, wake-ups, switches. Files, and nothing else."""
