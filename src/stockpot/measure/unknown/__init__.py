"""What a model does not know: foreign images, its own confidence, sets of answers, certificates."""
