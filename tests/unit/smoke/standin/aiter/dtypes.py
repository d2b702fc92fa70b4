import torch

fp8 = torch.float8_e4m3fn
bf16 = torch.bfloat16
