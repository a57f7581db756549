"""Methods that work on the singular vectors of matrices."""
