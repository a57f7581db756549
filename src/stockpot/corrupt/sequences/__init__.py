"""Sequences of ImageNet-P (arXiv:1903.12261): one picture, perturbed a little more each frame."""
