"""Several models measured together: in step over one decoded, corrupted batch."""
