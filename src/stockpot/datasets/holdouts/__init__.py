"""Surface variation: what is held out of training, and what the rest is tested against."""
