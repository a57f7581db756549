"""Ways to know where a model's loss rises: its gradient, and those for a model that hides it."""
