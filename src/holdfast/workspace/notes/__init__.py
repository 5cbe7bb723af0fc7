"""Who wrote the lines of a commit, found by content and written as git notes. Nothing else writes notes.

commit_lines   which lines a commit added, read from the user's git
line_authors   who wrote lines, found in the checkpoints by their content
moved_lines    runs of equal lines in two texts, wherever they are
trace          the Agent Trace record of a commit: encoding, decoding, comparing
notes_ref      reading and writing the notes ref
notes          the verbs: write and check
"""
