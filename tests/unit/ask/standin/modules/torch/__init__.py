"""As much of torch as a question needs: shapes and dtypes without storage. STANDIN_HIP makes it a ROCm build."""

import os


class Tensor:
    def __init__(self, shape, dtype):
        self.shape, self.dtype = tuple(shape), dtype


def empty_strided(shape, stride, dtype):
    assert len(shape) == len(stride)
    assert not any(stride), "storage for every element"
    return Tensor(shape, dtype)


def ones(n, dtype):
    return Tensor((n,), dtype)


class version:
    hip = os.environ.get("STANDIN_HIP")


float32, int32 = "torch.float32", "torch.int32"
