"""The command line: parses, calls the library, prints.

Answers go to stdout and everything else to stderr. With `--json`, stdout is exactly one JSON document, also for
an error: `{"error": {"kind": …, "message": …, "hint": …, "remedy": …}}`.

Exit codes (`exit_codes.py`):

    code  kind           meaning
    0                    done
    1                    `search` found nothing, as with `grep`
    2     usage          wrong options or arguments
    3     not-found      no such checkpoint, name, path or store
    4     conflict       something changed since it was read, or a name is taken
    5     damaged        stored data is damaged; also `verify` with problems
    6     refused        refused because it would do harm; also a question not answered with yes
    7     unavailable    the disk, a lock or a permission is in the way
    8                    done, but not completely: the output lists what is missing
    70    bug            an unexpected error inside Holdfast (HOLDFAST_DEBUG=1 shows where)
    130   interrupted    stopped by Ctrl-C

From the outside in:

    start, main      where the program begins; errors into exit codes (`exit_codes`)
    through_helper, served, caller    a command that the helper runs: the client, the helper, for whom it runs
    fast_log, status_output    `log` and `status`, answered without click
    fast_save, fast_restore    words of `save` and `restore` that are understood without click
    turns, words     how `log` shows turns; which words are checkpoints and which are paths
    group, command   the click group and the click command; `context` is what every command is given
    location_command    the click command of `log`, `show`, `diff` and others, which work on any `holdfast.location`
    commands/        one file per command
    restore_output, install_output, run_command    what several commands share
    agent_name       the names of agents, also as people call them
    kinds            what a command for folders was given instead
    streams, render, progress     the two streams, how things look, the progress bar
    pager            output that does not fit on the terminal
    picker, hunk_prompt    choosing from a list with the arrow keys; asking hunk by hunk
    values, readable    the values of a location, and states, as they are printed
    remedies         what to do about an error, with the options and commands of the program
    completion, reference        completion in shells; how docs/cli.md is made
"""
