"""moe-preflight: what will AMD's AITER do with this model's experts?"""

__version__ = "0.1.0"
