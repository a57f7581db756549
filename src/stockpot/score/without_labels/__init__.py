"""How good models are on images without labels, or with few: arithmetic on their answers."""
