"""Dynamic evaluation: generators change images, oracles say whether the class still stands."""
