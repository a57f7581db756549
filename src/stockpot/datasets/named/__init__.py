"""Datasets known by name: what each one is, and how it is fetched, checked and kept."""
