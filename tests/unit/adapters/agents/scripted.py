"""A scripted agent: a process of its own that runs hooks and changes files on demand. No model needed.

Reads one JSON object a line: {"hook": [words], "input": text} or {"write": {path: text}} or {"delete": [path]}; answers
each with one line.
"""

import json
import os
import subprocess
import sys


def main() -> None:
    for line in sys.stdin:
        told = json.loads(line)
        answer: dict[str, object] = {}
        if "hook" in told:
            ran = subprocess.run(told["hook"], input=told["input"].encode(), capture_output=True, check=False)
            answer = {"code": ran.returncode, "out": ran.stdout.decode(), "err": ran.stderr.decode()}
        for path, text in told.get("write", {}).items():
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(text)
        for path in told.get("delete", []):
            os.unlink(path)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
