__version__ = "0.1.20.post1"
