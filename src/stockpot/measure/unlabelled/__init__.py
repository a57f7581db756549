"""How good models are on images without labels, and which is best with few."""
