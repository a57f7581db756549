"""Members as flat vectors over one working model, and the soups that are chosen among them."""
