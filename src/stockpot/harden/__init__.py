"""Training that makes a model robust; one loop, one file per method."""
