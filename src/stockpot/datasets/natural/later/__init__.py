"""Sets of the ImageNet family that came after ImageNet-C: factors, diffusion, nuisances."""
