"""What a run needs besides its weights to go on as if it had never stopped."""
