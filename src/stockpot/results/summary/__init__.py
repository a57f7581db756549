"""What a page or a terminal says first: the few numbers that matter, what is best, what to mind."""

__all__: list[str] = []
