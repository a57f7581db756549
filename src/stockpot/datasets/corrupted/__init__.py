"""Corrupted copies of clean datasets, as they are published."""
