"""Pictures that come one after another, for models that adapt to them."""
