"""What is said of classes to a text tower: names and templates, by convention or one's own."""
