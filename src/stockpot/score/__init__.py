"""What is right: how outputs meet the classes of the data, decided here and nowhere else."""
