"""Recipes of mergekit: parsed, evaluated tensor by tensor, and put into our words."""
