"""Style transfer as a corruption."""
