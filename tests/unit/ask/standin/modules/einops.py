"""Here so that it is found; nothing asks anything of it."""
