"""What a rank sees: run by a launcher, it writes its environment and its cores to FOLDER/rank-N.json."""

import json
import os
import pathlib
import socket
import sys

folder, arguments = sys.argv[1], sys.argv[2:]


def command_lines():
    """What `ps` shows to every user of the machine."""
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue


record = {
    "environment": dict(os.environ),
    "cores": sorted(os.sched_getaffinity(0)),
    "arguments": arguments,
    "command_lines": list(command_lines()),
    "folder": str(pathlib.Path.cwd()),
    "host": socket.gethostname(),
    "mounted": any(pathlib.Path("/mnt").iterdir()),
    "plugin": pathlib.Path(os.environ.get("NCCL_NET_PLUGIN", "") or "none").is_file(),
    "folders": [path for path in os.environ.get("MIOPEN_USER_DB_PATH", "").split() if pathlib.Path(path).is_dir()],
}
pathlib.Path(folder, "rank-" + os.environ["RANK"] + ".json").write_text(json.dumps(record))
