"""Methods that keep a part of each change."""
