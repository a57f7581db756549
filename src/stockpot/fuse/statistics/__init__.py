"""Fusion by statistics of the members on their own data: Fisher information, Gram matrices."""
