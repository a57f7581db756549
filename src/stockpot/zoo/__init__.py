"""The embedded dataset and models, and the cards that say how they were made."""
