"""The gate: requirements on a model as data, and whether a model meets them."""
