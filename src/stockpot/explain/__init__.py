"""Relevance maps."""
