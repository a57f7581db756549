"""What data-driven fusion stands on: members in one model, tasks, what was learned."""
