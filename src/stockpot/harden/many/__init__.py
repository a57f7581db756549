"""Training on many processes: the same curve and the same weights as on one."""
