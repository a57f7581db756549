"""Members that arrive one after the other: each is merged into what the earlier ones left."""
