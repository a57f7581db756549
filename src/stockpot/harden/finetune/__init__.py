"""Ways to fine-tune a foundation model, which robust fine-tuning is compared with."""
