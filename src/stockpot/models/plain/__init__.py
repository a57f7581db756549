"""Networks of transformers written again in plain torch, for whoever only asks them.

Importing transformers' models takes longer than measuring a small one. The numbers are the same to
the bit, and so are the names of parts and weights; what these cannot hold, transformers loads.
"""
