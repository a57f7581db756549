"""Pictures by their content: known again, twins found, and data without splits parted."""
