"""Keys in a file, so that none stands in a program, on a command line or in an environment."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from holdfast.errors import NotFound, Refused, Unavailable
from holdfast.serde.keys import Keys

_HINT = 'Write {"2026-01": "32 bytes in base64"}; the last one seals, all of them open.'


def read_keys(path: str | Path) -> Keys:
    """Read a JSON file of keys by their ids, each of 32 bytes in base64. No part of a key is ever in a message."""
    try:
        text = Path(path).read_text("utf-8")
    except FileNotFoundError:
        raise NotFound(f"there is no file of keys {path}", hint=_HINT) from None
    except OSError as error:
        raise Unavailable(f"the keys in {path} cannot be read: {error.strerror}", hint="Check that you may.") from None
    except ValueError:
        raise Refused(f"{path} is not a file of keys", hint=_HINT) from None
    try:
        given = json.loads(text)
        keys = {name: base64.b64decode(key, validate=True) for name, key in given.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise Refused(f"{path} is not a file of keys", hint=_HINT) from None
    return Keys(keys)
