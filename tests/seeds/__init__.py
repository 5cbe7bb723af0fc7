"""What the documents of the five predecessors say, name by name, in the order of their pages."""
