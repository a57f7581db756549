"""Emoji art of vendors who do not give it away: read where a user has it, never embedded."""
