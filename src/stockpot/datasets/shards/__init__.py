"""Data that is too large to be one folder: tars of samples, streams of rows, parts of either."""
