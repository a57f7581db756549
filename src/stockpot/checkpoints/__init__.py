"""Lazy tensor reading, key layouts, alignment checks and atomic writing."""
