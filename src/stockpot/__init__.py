"""Stockpot: many checkpoints in, one robust image classifier out, with the evidence."""
