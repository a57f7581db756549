"""Weather: snow, frost, fog and spatter."""
