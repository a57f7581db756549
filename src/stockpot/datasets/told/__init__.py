"""What there is to say of datasets: where they are, what they hold, how they look."""
