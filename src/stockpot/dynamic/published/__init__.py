"""A generated benchmark that others measure their models on: written, read and checked."""
