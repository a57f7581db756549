"""Accuracy under attack: the measure, its protocols, and images that were found before."""
