"""Fusion that adapts coefficients or masks on unlabelled images."""
