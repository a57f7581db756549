"""From facts of a pool to advice. What a rule claims stands in `advise/evidence.py`."""
