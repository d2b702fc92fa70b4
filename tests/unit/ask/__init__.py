"""Tests of asking AITER itself."""
