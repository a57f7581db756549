"""Convolutional autoencoders with a quantised or a Gaussian latent, in the shape VQGANs have."""
