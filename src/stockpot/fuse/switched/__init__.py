"""Methods that make one model per member from a shared change."""
