"""Where work runs: in this process, in several, or elsewhere."""
