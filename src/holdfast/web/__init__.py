"""The page in the browser: rendered on the server, over the same values as the command line.

    server           binds to loopback, prints the address, runs until Ctrl-C
    app              the routes; errors as pages
    security         who may ask, and what: token, cookie, Host, Origin, CSRF, the headers of every response
    site             what all pages share: the locations, the templates, what was done last
    places           the workspaces of this computer and the locations that were named
    answers          one answer, as a page or as JSON
    rendering        templates, and how values look: times, sizes, addresses; all text is escaped here
    remedies         what to do about an error, on the page
    home             the page with all locations
    timeline, graph  the turns of a workspace; the lines and branches beside them
    turn, conversation    one turn: what was said, and what changed
    diff_view, syntax     changes as rows of lines; colours of a programming language
    take_back        plans, and carrying them out: take back, restore, undo, redo
    looking          compare, files, blame, search, coverage, usage
    locations, charts    flow stores, training runs, indexes; their metrics as plots
    states           of a state of a flow store, only what is shown
    work, jobs       verify and plan, which go on in the background
    location_process  what needs the models of an index, a framework or much memory, in a process of its own
    folder_work      the part of it that searches and measures workspaces
    steps            a session of a flow store as a line with its forks
    report           a session as one file, with secrets redacted
    live             server-sent events for what is new

Needs the extra `ui`. Nothing is fetched from elsewhere, and no page contains script or style of its own.
"""
