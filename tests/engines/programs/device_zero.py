"""The device of singleGpu.py, the tutorial of LUMI's container wrapper."""

import torch

device = 0  # shorthand for cuda:0
torch.cuda.set_device(device)
