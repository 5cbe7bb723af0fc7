"""How a checkpoint of training lies on a disk: names, digests, safetensors, the manifest."""
