"""Episodic adaptation: many views of one picture decide together, and nothing stays of them."""
