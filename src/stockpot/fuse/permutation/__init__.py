"""Which units of a network may change places, and how to bring two networks into line."""
