"""Training against the adversaries of several norms."""
