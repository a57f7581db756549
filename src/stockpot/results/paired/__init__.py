"""Two models on the same images: which of their results belong together, and what changed."""
