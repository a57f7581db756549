"""CLIP under the names of open_clip and of transformers, and from one to the other."""
