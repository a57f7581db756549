"""Pictures with captions, from the datasets that are at hand."""
