"""`codeweaver`: the checkpoints of its indexer, over `holdfast.indexing`.

engine.managers.checkpoint_manager    the manager, the checkpoint, the fingerprint, the settings that are hashed
core, providers                       the few names beside it that its callers use
settings                              what these modules share; not a name of CodeWeaver
"""
