"""Classifiers and how they are loaded."""
