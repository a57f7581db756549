"""Networks for small pictures that transformers does not have, one per file."""
