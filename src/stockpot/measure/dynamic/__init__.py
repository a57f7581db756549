"""Foundation-model-oriented robustness: accuracy on generated images that an oracle accepts."""
