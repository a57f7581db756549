"""The image classification tasks of model merging, by name, and the sets they are used in."""
