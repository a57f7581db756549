"""Soups chosen or learned on held-out, labelled images."""
