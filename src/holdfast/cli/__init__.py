"""The command line: parses, calls the library, prints.

Answers go to stdout and everything else to stderr. With `--json`, stdout holds exactly one JSON document, also for
an error: `{"error": {"kind": …, "message": …, "hint": …}}`.

Exit codes (`exits.py`):

    code  kind           meaning
    0                    done
    1     bug            an unexpected error inside Holdfast (HOLDFAST_DEBUG=1 shows where)
    2     usage          the command line makes no sense
    3     not-found      no such checkpoint, name, path or store
    4     conflict       something changed since it was looked at, or is taken already
    5     damaged        stored bytes are not what was stored; also `verify` with problems
    6     refused        would do harm or makes no sense; also a question not answered with yes
    7     unavailable    the disk, a lock or a permission is in the way
    8                    done, but not completely: the output lists what is missing
    130   interrupted    stopped by Ctrl-C

From the outside in:

    start, main      where the program begins; errors into exit codes (`exits`)
    shortcut         `log`, answered without click
    group, command   the click group and the click command; `app` is what every command is given
    commands/        one file a command
    flow/, training, indexing    the same for flow locations, training runs, `holdfast index`
    listing, restoring, saved, conversations, installing, running, picking    what several commands share
    given, locations, kinds      values and locations on the command line; what a place is that a command is not for
    output, render, progress     the two streams, how things look, the progress bar
    documents                    what `--json` prints
    completing, reference        completion in shells; how docs/cli.md is made
    demonstration, demo_project  `holdfast demo`
"""
