"""Corrupted datasets on disk: their files, the names in them, and the record of how they came."""
