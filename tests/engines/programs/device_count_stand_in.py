"""Run a program of a rank without GPUs: a stand-in for the devices that torch.cuda counts and selects.

usage: device_count_stand_in.py VARIABLE FOLDER PROGRAM.py...: VARIABLE lists the rank's devices; what each program has
selected is noted in FOLDER.
"""

import json
import os
import pathlib
import runpy
import sys
import types

variable, folder, *programs = sys.argv[1:]
devices = os.environ[variable].split(",")
selected = []


def set_device(index):
    """As CUDA and HIP: a device that is not visible is an error."""
    if index >= len(devices):
        raise RuntimeError(f"invalid device ordinal {index} of {len(devices)}")
    selected.append(devices[index])


stand_in = types.ModuleType("torch")
stand_in.cuda = types.SimpleNamespace(set_device=set_device, device_count=lambda: len(devices))
sys.modules["torch"] = stand_in
for program in programs:
    name, found = pathlib.Path(program).stem, {}
    selected.clear()
    try:
        runpy.run_path(program, run_name="__main__")
        found = {"device": selected[-1]}
    except Exception as error:  # what each program does on its own is the subject
        found = {"error": str(error)}
    found.update(node=os.environ.get("SLURM_NODEID"), threads=os.environ.get("OMP_NUM_THREADS"))
    pathlib.Path(folder, f"{name}-{os.environ['RANK']}.json").write_text(json.dumps(found))
