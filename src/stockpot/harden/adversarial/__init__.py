"""Training against the adversary of one norm."""
