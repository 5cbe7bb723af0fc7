"""PraisonAI's checkpoints: `checkpoints` (of `praisonaiagents`), and those of a coding session (of `praisonai`).

| PraisonAI | here |
|---|---|
| `praisonaiagents.checkpoints` | `holdfast.compat.praisonai.checkpoints` |
| `praisonai.cli.features.session_checkpoints` | `holdfast.compat.praisonai.cli.features.session_checkpoints` |
| `praisonai.cli.features.checkpoints` | `holdfast.compat.praisonai.cli.features.checkpoints` |
"""
