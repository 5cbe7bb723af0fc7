"""Import names and signatures of predecessors, over our engine; one package or module each, and none is loaded early.

A program written for a predecessor changes its import line and nothing else. What the predecessor did wrong is not
repeated; `docs/migrating.md` lists what differs. Each name warns once, and says what to import instead.
"""
