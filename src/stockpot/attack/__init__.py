"""Adversaries: l_p attacks, threat models and projections."""
