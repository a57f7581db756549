"""The seasoning methods, one file each."""
