"""`codex_ml`: its ways to save training checkpoints, with its files, written durably and read without running anything.

    utils.checkpoint_core, utils.checkpointing    one file and a folder of them; epochs with markers, the high-level API
    utils.checkpoint, utils.checkpoint_manager    legacy savers
    utils.checkpoint_retention, utils.retention   which folders of epochs to keep
    utils.storage, utils.checkpoint_event         copies elsewhere; a line of JSON for each save
    training.checkpointing                        files named after epoch and metric
    training.checkpoint_manager, training.checkpoint    files of steps, the best one linked
    checkpointing, io                             best-k indexes, manifests, atomic files
    cli.checkpoint, cli.checkpoint_validate       `python -m … --info latest`, `python -m … validate PATH`
    files, payload, rng and others                what these modules share; not names of codex_ml

New programs use `holdfast.training`: safetensors instead of one file per state, and nothing written twice.
"""
