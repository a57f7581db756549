"""Training on changed pictures: published lists of changes, mixtures, and the methods of them."""
