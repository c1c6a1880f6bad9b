"""Steps as Slurm jobs: tried and submitted as a chain, followed by their logs and records, found again later."""
