"""The tree on disk: which entries there are, what changed, what the rules leave out. Knows nothing of git's format.

A scan has two steps: `walk` lists, `read` reads what the walk found changed.

    walk        lists the folders of a workspace, and what is still to be read
    sweep       finds the folders that are certainly unchanged, with the native module
    cached_folders  the folders of a cache and of a walk, most of which stay encoded
    classify    decides for each entry whether it is saved
    ignore      ignore rules, and the folders that tools generate
    limits      how much is saved of what git ignores
    scan_start  when a scan began, by two clocks
    read        reads files that may change meanwhile
    cache       one folder as a scan saw it, and the cache of all of them
    attrs       modes, times, owners and extended attributes as text
    partial_walk    a walk over only what may have changed, according to `watch` (Linux `inotify`)
    dir_handles     folders opened one component at a time, never through a link
    sqlite_files    SQLite databases, their sidecars, and who has them open
    user_git, git_head, git_refs, git_index     what the user's own git says: settings, HEAD, refs, the index
    git_scratch     an empty repository that borrows the user's objects, for the git program to work in
"""
