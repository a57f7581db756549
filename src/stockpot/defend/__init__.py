"""Input-side defences that wrap a classifier."""
