"""Bringing a state back: the plan, the stage, the swap, the journal, and recovery after an interruption."""
