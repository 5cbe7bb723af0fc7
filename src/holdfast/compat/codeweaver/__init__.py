"""`codeweaver`: the checkpoints of its indexer, over `holdfast.indexing`.

engine.managers.checkpoint_manager    the manager, the checkpoint, the fingerprint, the settings that are hashed
engine.services.config_analyzer       what a change of the configuration means for an index
providers.types.vector_store          what a collection was made with, and its policy
core, providers                       the few names beside these that their callers use
settings, collections, errors         what these modules share; not names of CodeWeaver
"""
