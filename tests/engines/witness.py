"""What a rank sees: run by a launcher, it writes its environment and its cores to FOLDER/rank-N.json."""

import json
import os
import pathlib
import socket
import sys

folder, arguments = sys.argv[1], sys.argv[2:]
record = {
    "environment": dict(os.environ),
    "cores": sorted(os.sched_getaffinity(0)),
    "arguments": arguments,
    "folder": str(pathlib.Path.cwd()),
    "host": socket.gethostname(),
    "mounted": any(pathlib.Path("/mnt").iterdir()),
    "folders": [path for path in os.environ.get("MIOPEN_USER_DB_PATH", "").split() if pathlib.Path(path).is_dir()],
}
pathlib.Path(folder, "rank-" + os.environ["RANK"] + ".json").write_text(json.dumps(record))
