"""What a run needs besides its weights to continue exactly: random states and the environment."""
