"""Programs of the battery that run inside a guest, on its own Python and nothing else."""
