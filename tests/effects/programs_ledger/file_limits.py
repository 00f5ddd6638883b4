"""One write under a limit: `file_limits.py FOLDER PATH JSON`, with `fsize` (bytes that a file may have), `user` (whose it is), `size`. Says how it ended."""

import json
import os
import resource
import sys

from outlast.effects import file

_, path, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
if "fsize" in options:
    resource.setrlimit(resource.RLIMIT_FSIZE, (options["fsize"], options["fsize"]))
if "user" in options and os.getuid() == 0:
    os.setgid(options["user"])
    os.setuid(options["user"])
try:
    written = file.write(path, b"x" * options.get("size", 10), key="k", fence=1)
    print(json.dumps({"size": written.size}))
except file.FileNotWritten as error:
    print(json.dumps({"errno": error.errno, "message": str(error)}))
