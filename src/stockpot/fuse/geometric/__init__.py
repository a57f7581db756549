"""Methods that look at lengths and angles of whole tensors."""
