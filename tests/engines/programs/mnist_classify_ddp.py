"""How the ranks of mnist_classify_ddp.py meet, dawn-containers (cd7b345): its options, its rank, its process group."""

import argparse
import os

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser(description="PyTorch MNIST Example")
parser.add_argument("--ntasks-per-node", default=-1, type=int)
parser.add_argument("--dist-url", default="127.0.0.1", type=str)
parser.add_argument("--dist-port", default="55100", type=str)
parser.add_argument("--cpus-per-task", default=1, type=int)
parser.add_argument("--epochs", type=int, default=20)
args = parser.parse_args()

world_size = int(os.environ.get("PMI_SIZE", "1"))
rank = int(os.environ.get("PMI_RANK", "0"))
init_method = f"tcp://{args.dist_url}:{args.dist_port}"
dist.init_process_group(backend="gloo", init_method=init_method, rank=rank, world_size=world_size)
total = torch.tensor(rank)
dist.all_reduce(total)
if rank == 0:
    print(f"{world_size} ranks met at {init_method}: {int(total)}", flush=True)
dist.destroy_process_group()
