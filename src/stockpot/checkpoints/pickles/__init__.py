"""Weights taken out of files of `torch.save` without running anything that lies in them.

`python -m stockpot.checkpoints.pickles` is the process that does it: it imports neither torch nor
anything that a file names.
"""
