"""What a measurement leaves behind: schema, store, statistics, exports."""
