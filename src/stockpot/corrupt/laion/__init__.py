"""The six distortions of LAION-C (arXiv:2506.16950)."""
