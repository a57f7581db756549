"""Measures of shifts: data from elsewhere, unseen styles, conflicting cues, ImageNet's variants."""
