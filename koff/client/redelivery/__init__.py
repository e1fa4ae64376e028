"""What happens to messages after they were handed out: acknowledged, delivered again, or passed over."""
