"""Fine-tuning against masked images as counterfactuals (Xiao et al., arXiv:2303.03052)."""
