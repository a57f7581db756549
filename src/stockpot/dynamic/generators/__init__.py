"""The generators: autoencoders, and changes that need no weights."""
