"""What a check leaves behind for other programs: JUnit XML, Markdown, a badge, a record."""
