"""How steady answers are along the sequences of ImageNet-P."""
