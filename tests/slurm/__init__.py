"""A Slurm of one node, on loopback, that ends with the test that started it."""
