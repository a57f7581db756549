"""The oracles: dual encoders, classifiers, several of them together, and people."""
