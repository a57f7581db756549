"""What a page says, worked out from result files: plain values and pictures for the templates."""
