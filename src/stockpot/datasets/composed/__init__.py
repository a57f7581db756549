"""Data with a known shift, made from real pictures: contexts that mislead, domains that differ."""
