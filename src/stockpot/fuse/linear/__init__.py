"""Methods that are linear in the weights."""
