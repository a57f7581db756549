"""How a classifier is run without gradients: fast, in a chosen precision, and checked."""
