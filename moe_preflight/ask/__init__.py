"""Asking AITER itself: its own dispatch code, run in a child process, against the prediction (``check --ask-aiter``)."""
