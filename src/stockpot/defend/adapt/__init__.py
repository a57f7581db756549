"""Test-time adaptation: models that learn from the pictures they are asked about."""
