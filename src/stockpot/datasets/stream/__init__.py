"""From files to a device: looked at once, decoded once, moved beside the work."""
