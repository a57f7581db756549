"""What FusionBench writes: model pools, merging weights."""
