"""The tree on disk: which entries there are, what changed, what the rules leave out. Knows nothing of git's format.

A scan has two steps: `walk` lists, `read` reads what the walk found changed.

    walk        lists the folders of a workspace, and what is still to be read
    judge       decides about each entry of a folder that is listed
    ignore, pattern      ignore rules; what one pattern matches
    generated, limits    names of folders that tools generate; how much is held of what git ignores
    read        reads files that may change meanwhile
    folder      one folder as a scan saw it, and the cache of all of them
    attrs       modes, times, owners and extended attributes as text
    narrow      a walk over only what may have changed, by what `watch` was told through `inotify`
    handles     folders opened one component at a time, never through a link
    mounts      what is mounted inside a workspace
    databases   SQLite files that somebody is using
    usergit, githead     what the user's own git says: settings, index, HEAD
"""
