"""The device of pytorch_ddp.py, the guide for Frontier, with the rank from the environment."""

import os

import torch

world_rank = int(os.environ["RANK"])
num_gpus_per_node = torch.cuda.device_count()
local_rank = world_rank % num_gpus_per_node
torch.cuda.set_device(local_rank)
