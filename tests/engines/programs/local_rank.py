"""The device of multigpu.py and multinode.py, PyTorch's DDP tutorial series."""

import os

import torch

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
