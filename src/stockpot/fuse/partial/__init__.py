"""Methods that take over, in part, what one member changed."""
