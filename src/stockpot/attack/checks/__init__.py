"""Signs that a model hides from an attack, each a named fact that travels with the result."""
