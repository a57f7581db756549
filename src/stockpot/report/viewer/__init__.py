"""The viewer: a folder of static files to find and look at what models get right and wrong."""
