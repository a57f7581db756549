"""Blur: gaussian, defocus, glass, motion and zoom."""
