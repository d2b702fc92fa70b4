"""A layout of its own: rows reversed. fused_moe undoes it, so weights that were not shuffled give wrong numbers."""

import torch


def _flip(x):
    raw = x.view(torch.uint8) if x.element_size() == 1 else x.view(torch.int16)
    return raw.flip(-2).contiguous().view(x.dtype)


def shuffle_weight(x, layout=(16, 16), use_int4=False):
    assert tuple(layout) == (16, 16)
    assert x.shape[-2] % 16 == 0, f"{x.shape[-2]} % 16 == {x.shape[-2] % 16}"
    out = _flip(x)
    out.is_shuffled = True
    return out
