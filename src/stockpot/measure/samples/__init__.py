"""Per-image records: what a model answered, noted while a measure runs, written beside its cell."""
