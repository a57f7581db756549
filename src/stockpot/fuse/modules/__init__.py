"""Fusion that makes a module with a forward of its own."""
