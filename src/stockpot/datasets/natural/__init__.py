"""ImageNet and the sets that test what was learnt on it, in their public layouts."""
