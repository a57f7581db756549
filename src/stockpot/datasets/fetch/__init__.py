"""Bringing named datasets here: ordered sources, checked by sha256, kept in a cache directory."""
