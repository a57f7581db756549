"""Choosing the mixing weights of a soup."""
