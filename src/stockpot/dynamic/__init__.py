"""Dynamic evaluation: generators, oracles and the search between them."""
