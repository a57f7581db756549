"""Icons: real emoji art of openly licensed design families, class x concept x style."""
