"""Pages made from result files alone."""
