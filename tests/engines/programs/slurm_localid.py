"""The device of train_multi_gpu_ddp_env_setup.py, LUMI's workshop on AI (2b739a3)."""

import os

import torch

device = int(os.environ["SLURM_LOCALID"])
torch.cuda.set_device(device)
