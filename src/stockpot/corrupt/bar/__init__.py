"""The corruptions of ImageNet-C-bar and CIFAR-10-C-bar (arXiv:2102.11273)."""
