"""The stored format of training checkpoints: names, digests, safetensors, manifest, markers."""
